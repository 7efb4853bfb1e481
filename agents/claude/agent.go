package claude

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
)

// Agent is Claude Code.
type Agent struct{}

// Name is the agent's short name.
func (Agent) Name() string { return "claude" }

// Format is the name of the layout of its files.
func (Agent) Format() string { return "claude-code" }

// Roots returns the folders of projects: those in each folder that CLAUDE_CONFIG_DIR
// lists, separated by commas, else those in the two places where Claude Code looks.
func (Agent) Roots(env func(string) string) []string {
	var roots []string
	for _, dir := range strings.Split(env("CLAUDE_CONFIG_DIR"), ",") {
		if dir = strings.TrimSpace(dir); dir != "" {
			roots = append(roots, filepath.Join(dir, "projects"))
		}
	}
	home := cmp.Or(env("HOME"), env("USERPROFILE"))
	if len(roots) > 0 || home == "" {
		return roots
	}
	return []string{
		filepath.Join(home, ".claude", "projects"),
		filepath.Join(cmp.Or(env("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "claude", "projects"),
	}
}

// Wants reports whether a file has the name of a transcript.
func (Agent) Wants(name string) bool {
	_, ok := parseName(name)
	return ok
}

// Below returns a name from the project's folder on.
func (Agent) Below(path string) (string, bool) {
	parts := strings.Split(path, "/")
	from := len(parts) - 2
	for i, part := range parts[:max(0, from)+1] {
		if part == "subagents" && i >= 2 && strings.HasPrefix(parts[len(parts)-1], "agent-") {
			from = i - 2
		}
	}
	if from < 0 {
		return "", false
	}
	name := strings.Join(parts[from:], "/")
	_, ok := parseName(name)
	return name, ok
}

// Recognises reports whether a line is one of a transcript: it names its session as
// transcripts do, or is of one of the types that do not.
func (Agent) Recognises(line []byte) bool {
	for _, v := range values(line) {
		_, summary := v.Get("leafUuid")
		_, snapshot := v.Get("snapshot")
		_, named := v.Get("sessionId")
		if kind := v.Text("type"); kind != "" && named || kind == "summary" && summary || kind == "file-history-snapshot" && snapshot {
			return true
		}
	}
	return false
}

// File says which transcript a file is. Of a sub-agent's that lies beside the sessions
// only its lines say whose it is: it is none of ours while the first one does not.
func (Agent) File(name string, first []byte) (agents.File, bool) {
	n, ok := parseName(name)
	if !ok {
		return agents.File{}, false
	}
	if n.session == "" {
		n.session = sessionIn(first)
	}
	f := agents.File{Name: name, Stem: n.stem, Session: sessionID(n.project, n.session), Thread: agents.Main}
	if n.agent != "" {
		f.Thread = agentThread(n.agent)
	}
	return f, n.session != "" && len(f.Session) <= events.MaxIDLen
}

// Fold returns the state of a transcript before its first line.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// name is what the name of a transcript says.
type name struct {
	project string // the folder's name
	session string // "": the lines say it
	agent   string // "": it is the session's own
	stem    string
}

// parseName reads <project>/<session>.jsonl, <project>/agent-<id>.jsonl and
// <project>/<session>/subagents/.../agent-<id>.jsonl.
func parseName(path string) (name, bool) {
	stem, isLines := strings.CutSuffix(path, ".jsonl")
	parts := strings.Split(stem, "/")
	last := parts[len(parts)-1]
	agent, isAgent := strings.CutPrefix(last, "agent-")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return name{}, false
		}
	}
	if !isLines || len(parts) < 2 || isAgent && agent == "" {
		return name{}, false
	}
	n := name{project: parts[0], agent: agent, stem: strings.Join(parts[1:], "/")}
	switch {
	case len(parts) == 2 && isAgent:
		return n, true
	case len(parts) == 2:
		n.session, n.agent = last, ""
		return n, true
	case len(parts) >= 4 && parts[2] == "subagents" && isAgent:
		n.session = parts[1]
		return n, true
	}
	return name{}, false
}

// sessionIn returns the session that a line names, "" if it names none.
func sessionIn(line []byte) string {
	for _, v := range values(line) {
		if id := v.Text("sessionId"); id != "" && !strings.Contains(id, "/") {
			return id
		}
	}
	return ""
}

func sessionID(project, session string) string { return "claude/" + project + "/" + session }

func agentThread(id string) string { return "agent/" + id }
