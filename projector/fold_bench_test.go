package projector

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
)

// BenchmarkFold folds a session of a thousand 512-byte turns, decoding included.
func BenchmarkFold(b *testing.B) {
	sub := events.Session("", "fold")
	turn := events.Raw(fmt.Sprintf(`{"role":"user","content":"%0480d"}`, 0))
	var recs []events.Record
	var size int64
	for i := range 1000 {
		e, err := events.New("urn:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: turn}}})
		if err != nil {
			b.Fatal(err)
		}
		e.ID, e.Time = fmt.Sprint(i), time.Unix(int64(i), 0).UTC()
		recs = append(recs, events.Record{Event: e, Offset: events.Offset(i + 1), Recorded: e.Time})
		size += int64(len(e.Data))
	}
	b.SetBytes(size)
	for b.Loop() {
		s := NewSession(sub)
		for _, rec := range recs {
			s.Apply(Decode(rec))
		}
	}
	b.ReportMetric(float64(b.N*len(recs))/b.Elapsed().Seconds(), "records/s")
}
