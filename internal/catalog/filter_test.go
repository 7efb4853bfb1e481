package catalog

import (
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// A filter knows every subject that was added, over several layers, and few others.
func TestFilter(t *testing.T) {
	var f filter
	const count = 3 << 12
	sub := func(i int) events.Subject { return events.Session("default", fmt.Sprint("s", i)) }
	if f.has(sub(0)) {
		t.Error("an empty filter has a subject")
	}
	for i := range count {
		f.add(sub(i))
	}
	wrong := 0
	for i := range count {
		if !f.has(sub(i)) {
			t.Fatalf("session %d is forgotten", i)
		}
		if f.has(sub(count + i)) {
			wrong++
		}
	}
	if limit := count / 50; wrong > limit {
		t.Errorf("%d of %d others are reported, want at most %d", wrong, count, limit)
	}
	if f.has(events.Session("other", "s1")) && f.has(events.Session("other", "s2")) && f.has(events.Session("other", "s3")) {
		t.Error("sessions of another namespace are reported")
	}
}

// A writer that begins with stored sessions searches for new ones until it has read the names, and knows the stored
// ones before and after that.
func TestSessionsAreLearnt(t *testing.T) {
	dir := t.TempDir()
	c := New(dir, openingOf, nullLogger)
	beginAt(t, c, 0)
	offset := events.Offset(0)
	add := func(id string) {
		t.Helper()
		offset++
		f := projector.Decode(record(t, events.Session("", id), offset, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}}))
		must(t, c.Apply(t.Context(), f))
	}
	commit := func() {
		t.Helper()
		must(t, c.Commit(t.Context(), projector.Cursor{Offset: offset, EventID: fmt.Sprint("e", offset)}))
	}
	const stored = 3 * searchRows
	for i := range stored {
		add(fmt.Sprint("old", i))
	}
	if commit(); c.missed != 0 {
		t.Errorf("%d searches in an empty view", c.missed)
	}
	must(t, c.Close())
	c = New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, offset)
	for i := range 10 {
		add(fmt.Sprint("new", i))
		add(fmt.Sprint("old", stored-1-i))
		if want := min(i+1, 4); int(c.missed) != want || c.complete != (i >= 3) {
			t.Fatalf("after %d new sessions: %d searches, complete %v", i+1, c.missed, c.complete)
		}
	}
	add("old0") // which was never in memory
	commit()
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	for id, want := range map[string]int{"old0": 2, "old23": 2, "old14": 2, "old13": 1, "new0": 1, "new9": 1} {
		if s, ok, err := r.Session(t.Context(), "default", id); err != nil || !ok || s.Records != want {
			t.Errorf("%s: got %d records, %v, %v; want %d", id, s.Records, ok, err, want)
		}
	}
}
