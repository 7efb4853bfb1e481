package embedded_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// BenchmarkNewestDocument reads the newest content of a document of 10,000 revisions of 4 KiB and, in the same run, of
// a document with one revision.
func BenchmarkNewestDocument(b *testing.B) {
	s, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	long, short := events.Document("", "doc", "long"), events.Document("", "doc", "short")
	for doc, count := range map[events.Subject]int{long: 10_000, short: 1} {
		evs := make([]events.Event, count)
		for i := range evs {
			evs[i] = events.Event{ID: fmt.Sprint(i), Source: "urn:test", Type: events.TypeDocumentWritten, Subject: doc, Data: []byte(strings.Repeat("x", 4096))}
		}
		for part := range slices.Chunk(evs, 1000) {
			if _, _, err := s.Log().AppendSeries(b.Context(), doc, log.Any, part...); err != nil {
				b.Fatal(err)
			}
		}
	}
	l := &projector.Loader{Source: s.Log()}
	took := func(doc events.Subject) time.Duration {
		const times = 50
		began := time.Now()
		for range times {
			if _, err := l.Document(b.Context(), doc, 0); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began) / times
	}
	took(long)
	for b.Loop() {
		one, many := took(short), took(long)
		b.ReportMetric(float64(one.Microseconds()), "one-µs")
		b.ReportMetric(float64(many.Microseconds()), "10000-µs")
		b.ReportMetric(float64(many)/float64(one), "x-one")
	}
}
