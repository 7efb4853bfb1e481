//go:build unix

package catalog

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// BenchmarkSearch stores turns of 5,000 sessions, a thousand in a commit.
func BenchmarkSearch(b *testing.B) {
	const count, commit = 20_000, 1000
	text := "The quick brown fox jumps over the lazy dog, and the agent answers with words. The quick brown fox jumps over the lazy dog."
	cpu := cpuTime(b)
	for b.Loop() {
		s := NewSearch(b.TempDir(), func(projector.Turn) projector.Said { return projector.Said{Text: text, Roles: "user"} }, nullLogger)
		if _, _, err := s.Begin(b.Context()); err != nil {
			b.Fatal(err)
		}
		turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}}
		began := time.Now()
		for i := range count {
			rec := events.Record{Event: events.Event{ID: "e", Type: events.TypeTurnAppended, Subject: events.Session("", fmt.Sprintf("s%d", i%5000))}, Offset: events.Offset(i + 1), Recorded: began}
			if err := s.Apply(b.Context(), projector.Fact{Record: rec, Payload: turn}); err != nil {
				b.Fatal(err)
			}
			if (i+1)%commit == 0 {
				if err := s.Commit(b.Context(), projector.Cursor{Offset: rec.Offset, EventID: "e"}); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N*count), "CPU-ns/turn")
}

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
