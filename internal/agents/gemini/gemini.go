package gemini

import (
	"bytes"
	"cmp"
	"path"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

const agentName = "gemini"

// Agent is Gemini CLI.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return agentName }

// Format implements agents.Agent.
func (Agent) Format() string { return agentName }

// Roots returns Gemini's folder of projects, below GEMINI_CLI_HOME if that is set, else below the home folder.
func (Agent) Roots(env func(string) string) []string {
	home := cmp.Or(env("GEMINI_CLI_HOME"), env("HOME"), env("USERPROFILE"))
	if home == "" {
		return nil
	}
	return []string{path.Join(home, ".gemini", "tmp")}
}

// Wants implements agents.Agent.
func (Agent) Wants(name string) bool {
	_, ok := chatOf(name)
	return ok
}

// Below returns the part of a path from the project's folder on.
func (Agent) Below(file string) (string, bool) {
	parts := strings.Split(file, "/")
	for _, chats := range []int{len(parts) - 2, len(parts) - 3} {
		if chats > 0 && parts[chats] == "chats" {
			name := strings.Join(parts[chats-1:], "/")
			_, ok := chatOf(name)
			return name, ok
		}
	}
	return path.Base(file), false
}

// Recognises reports whether a file begins with the description of a session, on one line or as the document of older
// versions.
func (Agent) Recognises(beginning []byte) bool {
	first, _, _ := bytes.Cut(rawjson.Trim(beginning), []byte("\n"))
	if m, ok := objectOf(first); ok {
		return m.Text("sessionId") != "" && m.Text("projectHash") != ""
	}
	return bytes.HasPrefix(first, []byte("{")) && bytes.Contains(beginning, []byte(`"sessionId"`)) && bytes.Contains(beginning, []byte(`"projectHash"`)) &&
		bytes.Contains(beginning, []byte(`"messages"`))
}

// File describes a file. The name of a session's own file has only the beginning of its id; it is used if the first
// line does not have the whole id.
func (Agent) File(name string, first []byte) (agents.File, bool) {
	c, ok := chatOf(name)
	if !ok {
		return agents.File{}, false
	}
	return c.file(name, first)
}

// Renamed assigns a file to the session that its first line names, or else to a session named after the file.
func (Agent) Renamed(name string, first []byte) (agents.File, bool) {
	c, ok := renamed(name, first)
	if !ok {
		return agents.File{}, false
	}
	return c.file(name, first)
}

// file returns the file for a name and a first line.
func (c chat) file(name string, first []byte) (agents.File, bool) {
	id := c.session
	if c.agent == "" {
		id = cmp.Or(sessionIn(first), id)
	}
	f := agents.File{Name: name, Stem: c.stem, Session: session(id), Thread: agents.Main}
	if c.agent != "" {
		f.Thread = "agent/" + c.agent
	}
	return f, len(f.Session) <= events.MaxIDLen && len(f.Thread) <= events.MaxIDLen
}

// renamed describes a file without the name of a chat. Gemini CLI names a chat after the minute of its beginning and
// the beginning of its id.
func renamed(name string, first []byte) (chat, bool) {
	base, lines := strings.CutSuffix(path.Base(name), ".jsonl")
	c := chat{session: base, stem: base, whole: !lines}
	m, _ := objectOf(first)
	if began, id := timeOf(m, "startTime"), sessionIn(first); lines && id != "" && !began.IsZero() {
		c.stem = "session-" + began.UTC().Format(stamp) + "-" + id[:min(8, len(id))]
	}
	return c, token(base)
}

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// session returns the id of a session in tally.
func session(id string) string { return agentName + "/" + id }

// chat is a parsed file name:
//
//	<project>/chats/session-2026-01-02T03-04-<id8>.jsonl
//	<project>/chats/<parent>/<id>.jsonl
type chat struct {
	project string    // "": the folder is named after a hash
	began   time.Time // to the minute
	session string    // id, or its beginning
	agent   string    // of a sub-agent; "": it is the session's own file
	stem    string
	whole   bool // the file is one value on many lines, of an older version
}

const stamp = "2006-01-02T15-04"

// chatOf parses the path of a file below Gemini's folder, from any part on.
func chatOf(file string) (chat, bool) {
	base, lines := strings.CutSuffix(file, ".jsonl")
	base, whole := strings.CutSuffix(base, ".json")
	parts := strings.Split(base, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return chat{}, false
		}
	}
	n := len(parts)
	switch {
	case lines == whole:
		return chat{}, false
	case n >= 2 && parts[n-2] == "chats":
		return ownChat(parts, whole)
	case n >= 3 && parts[n-3] == "chats" && lines:
		return chat{project: projectIn(parts[:n-3]), session: parts[n-2], agent: parts[n-1], stem: parts[n-2] + "/" + parts[n-1]}, token(parts[n-2]) && token(parts[n-1])
	}
	return chat{}, false
}

// ownChat parses the name of a session's own file. A file in the newer format may lie beside an older one of the same
// name.
func ownChat(parts []string, whole bool) (chat, bool) {
	base := parts[len(parts)-1]
	rest, ok := strings.CutPrefix(base, "session-")
	if !ok || len(rest) < len(stamp)+2 || rest[len(stamp)] != '-' {
		return chat{}, false
	}
	began, err := time.Parse(stamp, rest[:len(stamp)])
	c := chat{project: projectIn(parts[:len(parts)-2]), began: began, session: rest[len(stamp)+1:], stem: base, whole: whole}
	if whole {
		c.stem += ".json"
	}
	return c, err == nil && token(c.session)
}

// projectIn returns the name of the project's folder, "" if that is a hash.
func projectIn(folders []string) string {
	if len(folders) == 0 {
		return ""
	}
	last := folders[len(folders)-1]
	if len(last) == 64 && strings.Trim(last, "0123456789abcdef") == "" {
		return ""
	}
	return last
}

// sessionIn returns the session that a line names, or "".
func sessionIn(line []byte) string {
	m, ok := objectOf(line)
	if id := m.Text("sessionId"); ok && token(id) {
		return id
	}
	return ""
}

// token reports whether a text can be part of an id.
func token(s string) bool { return agents.IsToken(s, "._-") }
