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

// BenchmarkFoldCheckpoints folds a job's checkpoints and runs. The cost of each must not grow with their number.
func BenchmarkFoldCheckpoints(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sub := events.Session("", "job/fold")
			var facts []Fact
			for i := range n {
				run := events.RunRef{Kind: "expert", ID: fmt.Sprint(i)}
				for _, p := range []events.Payload{&events.RunStarted{Run: run}, &events.CheckpointSaved{ID: fmt.Sprint(i), Kind: events.CheckpointStep, Run: &run}} {
					e, err := events.New("urn:bench", sub, p)
					if err != nil {
						b.Fatal(err)
					}
					e.ID = fmt.Sprint(len(facts))
					facts = append(facts, Decode(events.Record{Event: e, Offset: events.Offset(len(facts) + 1)}))
				}
			}
			for b.Loop() {
				s := NewSession(sub)
				for _, f := range facts {
					s.Apply(f)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*len(facts)), "ns/record")
		})
	}
}
