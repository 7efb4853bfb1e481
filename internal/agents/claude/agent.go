package claude

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// Agent is Claude Code.
type Agent struct{}

// Name returns the agent's short name.
func (Agent) Name() string { return "claude" }

// Format returns the name of the layout of its files.
func (Agent) Format() string { return "claude-code" }

// Roots returns the folders of projects: those in each folder of CLAUDE_CONFIG_DIR, a list separated by commas, else
// those in the two folders where Claude Code looks.
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

// Below returns the part of a path from the project's folder on.
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

// Recognises reports whether a file has a line of a transcript.
func (Agent) Recognises(head []byte) bool {
	for line := range bytes.Lines(head) {
		if slices.ContainsFunc(agents.Values(line, isOurs), func(v agents.Value) bool { return isOurs(v.Members) }) {
			return true
		}
	}
	return false
}

// isOurs reports whether an object is a line of a transcript: it has a known type and the transcript's member for the
// session, unless lines of that type lack it. Other agents use the same member, but their messages are not
// Anthropic's.
func isOurs(v rawjson.Members) bool {
	kind := v.Text("type")
	if message := v.Object("message"); message != nil {
		if _, says := message.Get("content"); !says {
			return false
		}
	}
	switch kind {
	case "summary":
		return hasNames(v, "leafUuid")
	case "file-history-snapshot":
		return hasNames(v, "snapshot")
	case "user", "assistant", "system", "progress", "attachment", "queue-operation", "ai-title", "custom-title", "tag", "agent-name", "last-prompt", "mode":
		return hasNames(v, "sessionId")
	}
	return kind != "" && hasNames(v, "sessionId") && hasNames(v, "uuid")
}

// isOthers reports whether a line is of another program: its type is one that only others write, and it has no member
// of a transcript's line.
func isOthers(line []byte) bool {
	v, err := rawjson.Object(line)
	if err != nil || hasNames(v, "sessionId", "uuid", "leafUuid", "snapshot", "messageId", "session_id") {
		return false
	}
	kind := v.Text("type")
	return strings.Contains(kind, ".") || slices.Contains(othersTypes, kind) || kind != "" && v.Object("payload") != nil
}

// othersTypes are types of the first lines of the files of pi and its descendants. All lines of Codex have a payload,
// and all types of Copilot CLI have a dot.
var othersTypes = []string{"session", "session_start", "model_change"}

func hasNames(v rawjson.Members, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := v.Get(name)
		return ok
	})
}

// File describes a transcript. If a sub-agent's file lies beside the sessions, only its lines name the session; if
// the first line does not, File returns false. It also returns false if the first line is another agent's.
func (Agent) File(name string, first []byte) (agents.File, bool) {
	n, ok := parseName(name)
	if !ok || isOthers(first) {
		return agents.File{}, false
	}
	if n.session == "" {
		n.session = sessionIn(first)
	}
	return n.file(name)
}

// Renamed assigns a file to the session that has the file's name.
func (Agent) Renamed(path string, first []byte) (agents.File, bool) {
	project, stem, ok := strings.Cut(path, "/")
	n, _ := parseName(path + ".jsonl")
	if _, isNamed := parseName(path); isNamed || !ok || n.session != stem || isOthers(first) {
		return agents.File{}, false
	}
	return fileName{project: project, session: stem, stem: stem}.file(path)
}

// file returns the file for a name.
func (n fileName) file(path string) (agents.File, bool) {
	f := agents.File{Name: path, Stem: n.stem, Session: sessionID(n.project, n.session), Thread: agents.Main}
	if n.agent != "" {
		f.Thread = agentThread(n.agent)
	}
	return f, n.session != "" && len(f.Session) <= events.MaxIDLen
}

// Fold returns the state of a transcript before its first line.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// fileName is a parsed file name.
type fileName struct {
	project string // name of the folder
	session string // "": the lines have it
	agent   string // "": it is the session's own file
	stem    string
}

// parseName parses <project>/<session>.jsonl, <project>/agent-<id>.jsonl and
// <project>/<session>/subagents/.../agent-<id>.jsonl.
func parseName(path string) (fileName, bool) {
	stem, isLines := strings.CutSuffix(path, ".jsonl")
	parts := strings.Split(stem, "/")
	last := parts[len(parts)-1]
	agent, isAgent := strings.CutPrefix(last, "agent-")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return fileName{}, false
		}
	}
	if !isLines || len(parts) < 2 || isAgent && agent == "" {
		return fileName{}, false
	}
	n := fileName{project: parts[0], agent: agent, stem: strings.Join(parts[1:], "/")}
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
	return fileName{}, false
}

// sessionIn returns the session that a line names, or "".
func sessionIn(line []byte) string {
	for _, v := range agents.Values(line, isOurs) {
		if id := v.Text("sessionId"); id != "" && !strings.Contains(id, "/") {
			return id
		}
	}
	return ""
}

func sessionID(project, session string) string { return "claude/" + project + "/" + session }

func agentThread(id string) string { return "agent/" + id }

// Lasts implements agents.Lasting. The ids of sessions are UUIDs, unique in all projects.
func (Agent) Lasts(session string) string {
	id := session[strings.LastIndexByte(session, '/')+1:]
	if len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "" || strings.Count(id, "-") != 4 {
		return ""
	}
	return id
}
