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
