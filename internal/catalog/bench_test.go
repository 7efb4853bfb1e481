package catalog

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// BenchmarkSpread folds records spread at random over many sessions, the worst case for the cache, and for comparison
// in the same run as many records of short-lived sessions.
func BenchmarkSpread(b *testing.B) {
	const sessions, count = 100_000, 400_000
	for b.Loop() {
		r := rand.New(rand.NewPCG(1, 1))
		spread := foldRate(b, count, func(int) int { return r.IntN(sessions) })
		short := foldRate(b, count, func(i int) int { return i / 100 })
		b.ReportMetric(spread, "spread/s")
		b.ReportMetric(short, "short/s")
		b.ReportMetric(spread/short, "x-short")
	}
}

// foldRate returns how many facts a second are folded and committed, in the way of a Runner that catches up.
func foldRate(b *testing.B, count int, session func(int) int) float64 {
	b.Helper()
	c := New(b.TempDir(), openingOf, nullLogger)
	defer c.Close()
	if _, _, err := c.Begin(b.Context()); err != nil {
		b.Fatal(err)
	}
	turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}}
	began := time.Now()
	for i := range count {
		rec := events.Record{Event: events.Event{ID: "e", Type: events.TypeTurnAppended, Subject: events.Session("", fmt.Sprintf("s%d", session(i)))}, Offset: events.Offset(i + 1), Recorded: began}
		if err := c.Apply(b.Context(), projector.Fact{Record: rec, Payload: turn}); err != nil {
			b.Fatal(err)
		}
		if c.Held() >= 16<<20 || i == count-1 {
			if err := c.Commit(b.Context(), projector.Cursor{Offset: rec.Offset, EventID: "e"}); err != nil {
				b.Fatal(err)
			}
		}
	}
	return float64(count) / time.Since(began).Seconds()
}

// BenchmarkInTurn folds records of sessions in turn, with the commits of a view that follows a log, and reports the time
// of a record: for few sessions, which share a commit, for many, and for many that are new.
func BenchmarkInTurn(b *testing.B) {
	for _, bc := range []struct {
		name            string
		sessions, count int
	}{{"few", 50, 40_000}, {"many", 20_000, 60_000}, {"new", 40_000, 40_000}} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				c := New(b.TempDir(), openingOf, nullLogger)
				_, _, err := c.Begin(b.Context())
				must(b, err)
				took := foldInTurn(b, c, bc.sessions, bc.count)
				b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(bc.count), "µs/record")
				must(b, c.Close())
			}
		})
	}
}

// foldInTurn folds records, and commits each 200 of them.
func foldInTurn(b *testing.B, c *Catalog, sessions, count int) time.Duration {
	turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`{"role":"user","content":"hello"}`)}}}
	began := time.Now()
	for i := range count {
		at := began.Add(time.Duration(i) * time.Millisecond)
		rec := events.Record{Event: events.Event{ID: "e", Type: events.TypeTurnAppended, Subject: events.Session("default", fmt.Sprintf("s%d", i%sessions)), Time: at}, Offset: events.Offset(i + 1), Recorded: at}
		must(b, c.Apply(b.Context(), projector.Fact{Record: rec, Payload: turn}))
		if i%200 == 199 || i == count-1 {
			must(b, c.Commit(b.Context(), projector.Cursor{Offset: rec.Offset, EventID: "e"}))
		}
	}
	return time.Since(began)
}
