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

const name = "codex"

// Agent is Codex CLI.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return name }

// Format implements agents.Agent.
func (Agent) Format() string { return name }

// Roots returns Codex' home, of which sessions and archived_sessions are folders: they are
// one root, so that a file that is archived is moved inside it.
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

// Below returns a name from the nearest folder of rollouts on, else from the folders of
// years, months and days.
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

// File says what a file is, by its name alone.
func (Agent) File(name string, _ []byte) (agents.File, bool) {
	r, ok := rolloutOf(name)
	if !ok {
		return agents.File{}, false
	}
	return r.file(name), true
}

// Renamed takes a file for the first of the thread that its first line names. It is called
// after itself if the line names none, or continues the thread after a revert.
func (Agent) Renamed(name string, first []byte) (agents.File, bool) {
	r, ok := renamed(name, first)
	return r.file(name), ok
}

// file is the file of a name.
func (r rollout) file(name string) agents.File {
	return agents.File{Name: name, Stem: r.id, Session: session(r.thread), Thread: agents.Main, Archived: within(name, archive)}
}

// renamed reads what a file is that has the name of no rollout.
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

// isRevision reports whether a file continues its thread after a revert: it has a base, which
// is not the place of a fork.
func isRevision(meta rawjson.Members) bool {
	base, refers := baseOf(meta)
	_, forks := meta.Get("forked_from_ordinal_exclusive")
	return refers && !forks && meta.Text("forked_from_id") != base.Stem
}

// isToken reports whether a text can be part of an id.
func isToken(s string) bool { return agents.IsToken(s, "._-") }

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// session returns the id that a thread has in tally.
func session(thread string) string { return name + "/" + thread }

// The folders of rollouts in Codex' home.
const (
	current = "sessions"
	archive = "archived_sessions"
)

// rollout is what the name of a file says:
// rollout-2026-01-02T03-04-05-<thread>.jsonl, with _<id> behind the thread if it continues
// the thread after a revert, and .zst at the end if it is compressed.
type rollout struct {
	began  time.Time // in the zone of the machine, which the name does not say
	thread string
	id     string // of the file, which others refer to: of the first one of a thread it is the thread's
}

const stamp = "2006-01-02T15-04-05"

// rolloutOf reads the name of a file, relative to Codex' home, to one of the folders in it
// or to one below.
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
	thread, id, isRevision := strings.Cut(rest[len(stamp)+1:], "_")
	if !isRevision {
		id = thread
	}
	return rollout{began, thread, id}, err == nil && isUUID(thread) && isUUID(id)
}

// within reports whether a folder is among those in which a file lies.
func within(name, folder string) bool {
	dir := "/" + path.Dir(name) + "/"
	return strings.Contains(dir, "/"+folder+"/")
}

// isUUID reports whether a text is a UUID as Codex spells its own.
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

// isOlder reports whether a UUID of version 7 was made in an earlier millisecond than
// another; false if one of them says no time.
func isOlder(id, than string) bool {
	return isTimed(id) && isTimed(than) && id[:13] < than[:13]
}

func isTimed(id string) bool { return isUUID(id) && id[14] == '7' }
