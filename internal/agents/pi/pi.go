package pi

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

const agentName = "pi"

// Agent is pi.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return agentName }

// Format implements agents.Agent.
func (Agent) Format() string { return agentName }

// Roots returns the folder of sessions in PI_CODING_AGENT_SESSION_DIR, and the one in pi's own folder.
func (Agent) Roots(env func(string) string) []string {
	home := cmp.Or(env("HOME"), env("USERPROFILE"))
	var roots []string
	if dir := expand(env("PI_CODING_AGENT_SESSION_DIR"), home); dir != "" {
		roots = append(roots, dir)
	}
	if dir := expand(env("PI_CODING_AGENT_DIR"), home); dir != "" {
		return append(roots, path.Join(dir, "sessions"))
	}
	if home != "" {
		roots = append(roots, path.Join(home, ".pi", "agent", "sessions"))
	}
	return roots
}

// expand replaces a leading ~ by the home folder, as pi does.
func expand(dir, home string) string {
	if rest, ok := strings.CutPrefix(dir, "~"); ok && home != "" && (rest == "" || rest[0] == '/') {
		return path.Join(home, rest)
	}
	return dir
}

// Wants implements agents.Agent.
func (Agent) Wants(name string) bool {
	_, ok := nameOf(name)
	return ok
}

// Below returns the name of a file, with the folder of its working directory if there is one.
func (Agent) Below(file string) (string, bool) {
	_, ok := nameOf(file)
	dir, name := path.Split(file)
	if folder := path.Base(dir); strings.HasPrefix(folder, "--") && strings.HasSuffix(folder, "--") {
		name = folder + "/" + name
	}
	return name, ok
}

// Recognises reports whether a file begins with the header of a session, followed by an entry. pi's output begins
// with the same header, followed by events.
func (Agent) Recognises(beginning []byte) bool {
	isHeaded := false
	for line := range bytes.Lines(beginning) {
		m, err := rawjson.Object(line)
		if err != nil {
			continue
		}
		switch kind := m.Text("type"); {
		case isHeaded:
			return slices.Contains(entryTypes, kind)
		case kind != "session" || m.Text("id") == "" || m.Text("timestamp") == "":
			return false
		}
		isHeaded = true
	}
	return isHeaded
}

// entryTypes are the types of the lines after a header.
var entryTypes = []string{"message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "custom_message", "label", "session_info", "session"}

// File describes a file by its name alone.
func (Agent) File(name string, _ []byte) (agents.File, bool) {
	n, ok := nameOf(name)
	if !ok {
		return agents.File{}, false
	}
	return n.file(name), true
}

// Renamed assigns a file that another program wrote to the session in its header, or else to a session named after
// the file.
func (Agent) Renamed(name string, first []byte) (agents.File, bool) {
	n, ok := headed(name, first)
	return n.file(name), ok
}

// file returns the file for a name.
func (n named) file(name string) agents.File {
	return agents.File{Name: name, Stem: n.stem, Session: session(n.id), Thread: agents.Main}
}

// headed describes a file by its header, from which pi would make the name: the time and the id.
func headed(file string, first []byte) (named, bool) {
	base := strings.TrimSuffix(path.Base(file), ".jsonl")
	m, _ := rawjson.Object(first)
	if id := m.Text("id"); m.Text("type") == "session" && token(id) {
		stem := id
		if at := entryOf(m).time; !at.IsZero() {
			stem = strings.ReplaceAll(at.UTC().Format(stamp+".000"), ".", "-") + "Z_" + id
		}
		return named{stem: stem, id: id}, len(session(id)) <= events.MaxIDLen
	}
	return named{stem: base, id: base}, token(base)
}

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// session returns the id of a session in tally.
func session(id string) string { return agentName + "/" + id }

// named is a parsed file name: 2026-01-02T03-04-05-678Z_<id>.jsonl.
type named struct {
	stem  string
	began time.Time
	id    string
}

const stamp = "2006-01-02T15-04-05"

// nameOf parses the name of a file in any folder. The path may be of another system.
func nameOf(file string) (named, bool) {
	base := file[strings.LastIndexAny(file, `/\`)+1:]
	stem, isLines := strings.CutSuffix(base, ".jsonl")
	when, id, ok := strings.Cut(stem, "_")
	if !isLines || !ok || len(when) != len(stamp+"-000Z") || !token(id) {
		return named{}, false
	}
	began, err := time.Parse(stamp+".000Z", when[:len(stamp)]+"."+when[len(stamp)+1:])
	return named{stem, began, id}, err == nil && len(session(id)) <= events.MaxIDLen
}

// token reports whether a text can be part of an id.
func token(s string) bool { return agents.IsToken(s, "._-") }
