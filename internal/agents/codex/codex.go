package codex

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

const agentName = "codex"

// Agent is Codex CLI.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return agentName }

// Format implements agents.Agent.
func (Agent) Format() string { return agentName }

// Roots returns Codex' home, which contains the folders sessions and archived_sessions. They are one root, so that a
// file stays in the root when it is archived.
func (Agent) Roots(env func(string) string) []string {
	if home := env("CODEX_HOME"); home != "" {
		return []string{home}
	}
	if home := cmp.Or(env("HOME"), env("USERPROFILE")); home != "" {
		return []string{path.Join(home, ".codex")}
	}
	return nil
}

// Wants implements agents.Agent.
func (Agent) Wants(name string) bool {
	_, ok := rolloutOf(name)
	return ok
}

// Below returns the part of a path from the nearest folder of rollouts on, else from the folders of years, months and
// days.
func (Agent) Below(file string) (string, bool) {
	parts := strings.Split(file, "/")
	from := len(parts) - 1
	for from > 0 && isNumber(parts[from-1]) && len(parts)-from <= 3 {
		from--
	}
	if from > 0 && (parts[from-1] == current || parts[from-1] == archive) {
		from--
	}
	name := strings.Join(parts[from:], "/")
	_, ok := rolloutOf(name)
	return name, ok
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Recognises reports whether a file has a line of a rollout.
func (Agent) Recognises(beginning []byte) bool {
	for line := range bytes.Lines(beginning) {
		if slices.ContainsFunc(entriesOf(line), isOurs) {
			return true
		}
	}
	return false
}

func isOurs(e entry) bool {
	switch e.kind {
	case metaLine, itemLine, eventLine, contextLine, compactedLine, usageLine:
		return !e.time.IsZero() && e.payload != nil
	}
	return false
}

// File describes a file by its name alone.
func (Agent) File(name string, _ []byte) (agents.File, bool) {
	r, ok := rolloutOf(name)
	if !ok {
		return agents.File{}, false
	}
	return r.file(name), true
}

// Renamed assigns a file to the thread in its first line, as the thread's first file. If the line names no thread, or
// continues it after a revert, the file is named after itself.
func (Agent) Renamed(name string, first []byte) (agents.File, bool) {
	r, ok := renamed(name, first)
	return r.file(name), ok
}

// file returns the file for a name.
func (r rollout) file(name string) agents.File {
	return agents.File{Name: name, Stem: r.id, Session: session(r.thread), Thread: agents.Main, Archived: within(name, archive)}
}

// renamed describes a file without a rollout's name.
func renamed(name string, first []byte) (rollout, bool) {
	base := strings.TrimSuffix(path.Base(name), ".jsonl")
	for _, e := range entriesOf(first) {
		id := e.payload.Text("id")
		if e.kind != metaLine || !isUUID(id) {
			continue
		}
		if isRevision(e.payload) {
			return rollout{thread: id, id: base}, isToken(base)
		}
		return rollout{thread: id, id: id}, true
	}
	return rollout{thread: base, id: base}, isToken(base)
}

// isRevision reports whether a file continues its thread after a revert: it has a base, and that is not the origin of
// a fork.
func isRevision(meta rawjson.Members) bool {
	base, refers := baseOf(meta)
	_, forks := meta.Get("forked_from_ordinal_exclusive")
	return refers && !forks && meta.Text("forked_from_id") != base.Stem
}

// isToken reports whether a text can be part of an id.
func isToken(s string) bool { return agents.IsToken(s, "._-") }

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// session returns the id of a thread in tally.
func session(thread string) string { return agentName + "/" + thread }

// The folders of rollouts in Codex' home.
const (
	current = "sessions"
	archive = "archived_sessions"
)

// rollout is a parsed file name: rollout-2026-01-02T03-04-05-<thread>.jsonl. If the file continues the thread after a
// revert, _<id> follows the thread. If it is compressed, .zst follows.
type rollout struct {
	began  time.Time // in the unknown time zone of the machine
	thread string
	id     string // of the file, for references; for the first file of a thread, the thread's id
}

const stamp = "2006-01-02T15-04-05"

// rolloutOf parses the name of a file, relative to Codex' home, to one of its folders, or to a folder below.
func rolloutOf(name string) (rollout, bool) {
	first, _, inFolder := strings.Cut(name, "/")
	if inFolder && first != current && first != archive && strings.Trim(first, "0123456789") != "" {
		return rollout{}, false
	}
	base := strings.TrimSuffix(path.Base(name), ".zst")
	rest, isRollout := strings.CutPrefix(base, "rollout-")
	rest, isLines := strings.CutSuffix(rest, ".jsonl")
	if !isRollout || !isLines || len(rest) < len(stamp)+1 || rest[len(stamp)] != '-' {
		return rollout{}, false
	}
	began, err := time.Parse(stamp, rest[:len(stamp)])
	thread, id, revised := strings.Cut(rest[len(stamp)+1:], "_")
	if !revised {
		id = thread
	}
	return rollout{began, thread, id}, err == nil && isUUID(thread) && isUUID(id)
}

// within reports whether a file lies in a folder of that name, at any level.
func within(name, folder string) bool {
	dir := "/" + path.Dir(name) + "/"
	return strings.Contains(dir, "/"+folder+"/")
}

// isUUID reports whether a text is a UUID in Codex' spelling.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

// isOlder reports whether a UUID of version 7 has an earlier millisecond than another. It returns false if one of
// them has no time.
func isOlder(id, than string) bool {
	return isTimed(id) && isTimed(than) && id[:13] < than[:13]
}

func isTimed(id string) bool { return isUUID(id) && id[14] == '7' }
