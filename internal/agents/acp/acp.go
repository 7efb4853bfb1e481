package acp

import (
	"bytes"
	"encoding/base64"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

const (
	agentName = "acp"
	suffix    = ".acp.jsonl"
)

// Agent is any agent that speaks the protocol.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return agentName }

// Format implements agents.Agent.
func (Agent) Format() string { return agentName }

// Roots returns nothing: users choose where they record connections.
func (Agent) Roots(func(string) string) []string { return nil }

// Wants implements agents.Agent.
func (Agent) Wants(name string) bool {
	stem, ok := strings.CutSuffix(path.Base(name), suffix)
	return ok && token(stem)
}

// Below returns the file's own name.
func (a Agent) Below(file string) (string, bool) { return path.Base(file), a.Wants(file) }

// File describes a file by its name alone.
func (a Agent) File(file string, _ []byte) (agents.File, bool) {
	if !a.Wants(file) {
		return agents.File{}, false
	}
	stem := strings.TrimSuffix(path.Base(file), suffix)
	return agents.File{Name: file, Stem: stem, Session: agentName + "/" + stem, Thread: agents.Main}, true
}

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// Record returns the recorded form of a line of a connection, without its line end: the line and its direction. It
// also keeps lines that are not JSON.
func Record(toAgent bool, line []byte) []byte {
	out := []byte(`{"toAgent":false,`)
	if toAgent {
		out = []byte(`{"toAgent":true,`)
	}
	switch {
	case rawjson.Check(line) == nil && !bytes.ContainsRune(line, '\n'):
		out = append(append(out, `"message":`...), rawjson.Trim(line)...)
	case utf8.Valid(line):
		out = rawjson.AppendString(append(out, `"text":`...), string(line))
	default:
		out = rawjson.AppendString(append(out, `"bytes":`...), base64.StdEncoding.EncodeToString(line))
	}
	return append(out, '}')
}

// said is a recorded line.
type said struct {
	toAgent bool
	rawjson.Members
}

// saidIn parses a line. It returns false if the line has no message.
func saidIn(line []byte) (said, bool) {
	var s said
	raw := rawjson.Trim(line)
	if len(raw) > 1 && raw[1] == ' ' && (raw[0] == '>' || raw[0] == '<') {
		m, err := rawjson.Object(raw[2:])
		return said{raw[0] == '>', m}, err == nil
	}
	m, err := rawjson.Object(raw)
	if err != nil {
		return s, false
	}
	to, ok := m.Get("toAgent")
	s.toAgent, s.Members = string(to) == "true", m.Object("message")
	return s, ok && s.Members != nil
}

// token reports whether a text can be part of an id.
func token(s string) bool { return agents.IsToken(s, "._:-") }

// sessionOf returns the id in tally of an agent's session, "" if the session can have no id.
func sessionOf(agent, id string) string {
	s := agentName + "/" + agent + "/" + id
	if !token(id) || len(s) > events.MaxIDLen {
		return ""
	}
	return s
}
