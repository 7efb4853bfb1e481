package agentstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
)

// record is an event as tally log prints it.
type record struct {
	Offset   int64
	Recorded time.Time
	State    string
	Event    struct {
		ID, Type, Subject string
		Line              string `json:"tallyline"`
		Data              payload
	}
}

// session returns the id of the event's session.
func (r record) session() string {
	sub, _ := events.ParseSubject(events.DefaultNamespace, r.Event.Subject)
	return sub.ID
}

// payload has the members of events that the comparisons need.
type payload struct {
	Entries []struct {
		Thread, ID string
		Turn       json.RawMessage
		Timestamp  time.Time
	}
	Fork   *place
	Parent *place
	To     int64
	Reason string
	Run    struct{ ID string }
}

type place struct {
	Session string
	Offset  int64
}

// A file is a session file of an agent.
type file struct {
	name    string // path below the agent's root, with slashes
	content []byte
}

// base returns the file's name without its folder.
func (f file) base() string { return path.Base(f.name) }

// lines returns the lines of the file, without their ends.
func (f file) lines() []string {
	if len(f.content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(f.content), "\n"), "\n")
}

// files returns the files below a folder whose names are like those of the agent's files.
func files(t *testing.T, root string, like func(name string) bool) (list []file) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if rel = filepath.ToSlash(rel); err != nil || !like(rel) {
			return err
		}
		content, err := os.ReadFile(name)
		list = append(list, file{rel, content})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A comparison has an agent's files and the store's records of them.
type comparison struct {
	*machine
	agent, format string
	files         []file
	records       []record
	at            map[string]record // the events of lines, by the file and the offset of the line
	owner         map[string]string // the sessions of files, by base name
}

// compare reads both sides.
func (m *machine) compare(agent, format, root string, like func(name string) bool) *comparison {
	m.t.Helper()
	c := &comparison{m, agent, format, files(m.t, root, like), m.records(), make(map[string]record), make(map[string]string)}
	if len(c.files) == 0 {
		m.t.Fatalf("%s: got no files in %s", agent, root)
	}
	for _, r := range c.records {
		name, where, ok := strings.Cut(r.Event.Line, ":")
		if !ok || r.Event.Type != events.TypeTurnAppended { // the end of a file has its name
			continue
		}
		begin, _, _ := strings.Cut(where, "+")
		key := path.Base(name) + ":" + begin
		if other, twice := c.at[key]; twice {
			m.t.Errorf("%s: got the line in @%d and @%d", key, other.Offset, r.Offset)
		}
		c.at[key], c.owner[path.Base(name)] = r, r.session()
	}
	return c
}

func (m *machine) records() []record {
	m.t.Helper()
	return parsedLines[record](m.t, m.tally("log", "--all-sessions", "-o", "jsonl"))
}

// soon is the time limit for a line to reach the store.
const soon = 20 * time.Second

// caughtUp waits until the store has as many lines as the agent has written.
func (m *machine) caughtUp(root string, like func(name string) bool) {
	m.t.Helper()
	var have, want int
	for end := time.Now().Add(soon); time.Now().Before(end); {
		have, want = 0, 0
		for _, f := range files(m.t, root, like) {
			want += bytes.Count(f.content, []byte("\n"))
		}
		for _, r := range m.records() {
			if r.Event.Line != "" && r.Event.Type == events.TypeTurnAppended {
				have++
			}
		}
		if have >= want {
			return
		}
	}
	m.t.Fatalf("got %d of %d lines in the store", have, want)
}

// lines compares events with lines: each line is one event with the same bytes.
func (c *comparison) lines() {
	c.t.Helper()
	want, size := 0, 0
	for _, f := range c.files {
		begin := 0
		for _, line := range f.lines() {
			r, ok := c.at[fmt.Sprint(f.base(), ":", begin)]
			switch {
			case !ok:
				c.t.Errorf("%s: got no event for the line at byte %d", f.name, begin)
			case len(r.Event.Data.Entries) != 1 || string(r.Event.Data.Entries[0].Turn) != line:
				c.t.Errorf("%s: the line at byte %d: got @%d with %.300s", f.name, begin, r.Offset, r.Event.Data.Entries)
			}
			want, size, begin = want+1, size+len(line)+1, begin+len(line)+1
		}
	}
	if len(c.at) != want {
		c.t.Errorf("got %d events of lines, want %d", len(c.at), want)
	}
	c.t.Logf("%d files, %d lines, %d bytes, %d events", len(c.files), want, size, len(c.records))
}

// bytes compares the files with exported files. If a file was moved away after its last line, the export may have it at
// the old path.
func (c *comparison) bytes() {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "out")
	c.tally("export", "--all", "--format", c.format, "-C", dir)
	given := make(map[string]string)
	for _, f := range files(c.t, dir, func(string) bool { return true }) {
		given[f.base()] = string(f.content)
	}
	for _, f := range c.files {
		if given[f.base()] != string(f.content) {
			c.t.Errorf("%s: %d bytes: got %d", f.name, len(f.content), len(given[f.base()]))
		}
		delete(given, f.base())
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		c.t.Errorf("got an exported %s, which the agent does not have", name)
	}
}

// lag logs the time from a line's timestamp to its recording. The timestamp is that of the reported act, before the
// line is written.
func (c *comparison) lag() {
	c.t.Helper()
	var list []time.Duration
	for _, r := range c.at {
		if at := r.Event.Data.Entries[0].Timestamp; !at.IsZero() {
			list = append(list, r.Recorded.Sub(at))
		}
	}
	slices.Sort(list)
	if n := len(list); n > 0 {
		c.t.Logf("recorded %v after the line's time, p90 %v, at the latest %v", list[n/2], list[n*9/10], list[n-1])
	}
}

// turn is a turn in the output of tally show.
type turn struct {
	Offset int64
	Turn   json.RawMessage
}

// main returns the turns in effect of a session's main thread, as of an offset; 0: now.
func (m *machine) main(session string, at int64) []turn {
	m.t.Helper()
	args := []string{"show", session, "--thread", "main", "-o", "json"}
	if at > 0 {
		args = append(args, "--at", fmt.Sprint("@", at))
	}
	shown := parsed[struct {
		Threads map[string]struct{ Turns []turn }
	}](m.t, m.tally(args...))
	list := shown.Threads["main"].Turns
	for i := range list { // the output is indented
		var compact bytes.Buffer
		if err := json.Compact(&compact, list[i].Turn); err != nil {
			m.t.Fatal(err)
		}
		list[i].Turn = compact.Bytes()
	}
	return list
}

// tokens are numbers of used tokens.
type tokens struct{ Input, Output, Reasoning, CacheRead, CacheWrite int64 }

func (t tokens) plus(o tokens) tokens {
	return tokens{t.Input + o.Input, t.Output + o.Output, t.Reasoning + o.Reasoning, t.CacheRead + o.CacheRead, t.CacheWrite + o.CacheWrite}
}

func (t tokens) minus(o tokens) tokens {
	return tokens{t.Input - o.Input, t.Output - o.Output, t.Reasoning - o.Reasoning, t.CacheRead - o.CacheRead, t.CacheWrite - o.CacheWrite}
}

// cost returns the cost of a session as tally prints it.
type cost struct {
	Spent, OnBranch struct {
		USD    json.Number
		Tokens tokens
		Events int
	}
}

func (m *machine) cost(session string) cost {
	m.t.Helper()
	return parsed[cost](m.t, m.tally("cost", session, "-o", "json"))
}

// same compares lists of texts.
func (m *machine) same(what string, got, want []string) {
	m.t.Helper()
	if !slices.Equal(got, want) {
		m.t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
