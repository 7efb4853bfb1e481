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
	name   = "acp"
	suffix = ".acp.jsonl"
)

// Agent is whatever agent speaks the protocol.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return name }

// Format implements agents.Agent.
func (Agent) Format() string { return name }

// Roots returns nothing: connections are where somebody records them.
func (Agent) Roots(func(string) string) []string { return nil }

// Wants implements agents.Agent.
func (Agent) Wants(name string) bool {
	stem, ok := strings.CutSuffix(path.Base(name), suffix)
	return ok && token(stem)
}

// Below returns the file's own name.
func (a Agent) Below(file string) (string, bool) { return path.Base(file), a.Wants(file) }

// File says what a file is, by its name alone.
func (a Agent) File(file string, _ []byte) (agents.File, bool) {
	if !a.Wants(file) {
		return agents.File{}, false
	}
	stem := strings.TrimSuffix(path.Base(file), suffix)
	return agents.File{Name: file, Stem: stem, Session: name + "/" + stem, Thread: agents.Main}, true
}

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// Record returns a line of a connection as it is recorded, without its end: what came, and
// to whom it went. What is no JSON is kept too.
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

// saidIn reads a line; false if it has no message.
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

// sessionOf returns the id that an agent's session has in tally, "" if it can have none.
func sessionOf(agent, id string) string {
	s := name + "/" + agent + "/" + id
	if !token(id) || len(s) > events.MaxIDLen {
		return ""
	}
	return s
}
