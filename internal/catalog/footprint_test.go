package catalog

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// The catalog counts about the memory of the sessions that it keeps, and keeps no more than its bound.
func TestCatalogCountsItsMemory(t *testing.T) {
	testkit.NotUnderRace(t)
	c := New(t.TempDir(), openingOf, nullLogger)
	defer c.Close()
	if _, _, err := c.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}}
	last := 0
	add := func(n int) {
		for range n {
			last++
			rec := events.Record{Event: events.Event{ID: "e", Type: events.TypeTurnAppended, Subject: events.Session("", fmt.Sprint("session-", last))}, Offset: events.Offset(last), Recorded: time.Unix(int64(last), 0)}
			if err := c.Apply(t.Context(), projector.Fact{Record: rec, Payload: turn}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Commit(t.Context(), projector.Cursor{Offset: events.Offset(last), EventID: "e"}); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools keep for one collection
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	add(100)
	before, base := heap(), c.footprint
	add(300)
	used, counted := heap()-before, c.footprint-base
	t.Logf("%d bytes a session used, %d counted", used/300, counted/300)
	if used > counted*5/4 || used < counted*3/4 {
		t.Errorf("got %d bytes for 300 sessions, counted %d", used, counted)
	}
	if !testkit.Full() {
		return
	}
	add(memory / (counted / 300))
	if c.footprint > memory || len(c.sessions) >= last {
		t.Errorf("got %d bytes of %d sessions, want at most %d bytes", c.footprint, len(c.sessions), memory)
	}
}
