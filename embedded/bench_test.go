package embedded_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// BenchmarkAppend reports durable appends of 512-byte turns per second; each producer waits for its acknowledgement.
// In the same run it measures appends with a sync of every message, and single writes with fdatasync on the same disk.
func BenchmarkAppend(b *testing.B) {
	for _, producers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			group := appends(b, embedded.ServerOptions{}, producers, b.N)
			each := appends(b, embedded.ServerOptions{SyncEach: true}, producers, max(b.N/10, producers))
			b.ReportMetric(group, "appends/s")
			b.ReportMetric(group/each, "x-sync-each")
		})
	}
	b.Run("write+fdatasync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		line := make([]byte, 700)
		for b.Loop() {
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	})
}

// BenchmarkAttached reports the appends per second of processes that append through the owner, the owner's own rate,
// and the cost of reading everything back.
func BenchmarkAttached(b *testing.B) {
	for _, producers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			s, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			a, err := embedded.Attach(b.Context(), embedded.ServerOptions{Dir: s.Dir()})
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			attached := appendsTo(b, a.Log(), producers, b.N)
			own := appendsTo(b, s.Log(), producers, b.N)
			b.ReportMetric(attached, "appends/s")
			b.ReportMetric(attached/own, "x-owner")
			began, n := b.Elapsed(), 0
			for _, err := range a.Log().Read(b.Context(), events.Range{}) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)/(b.Elapsed()-began).Seconds(), "reads/s")
		})
	}
}

// appends makes n appends as the owner of a new store and returns their rate.
func appends(b *testing.B, o embedded.ServerOptions, producers, n int) float64 {
	b.Helper()
	o.Dir, o.Private = b.TempDir(), true
	s, err := embedded.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	return appendsTo(b, s.Log(), producers, n)
}

func appendsTo(b *testing.B, l appender, producers, n int) float64 {
	b.Helper()
	line := fmt.Sprintf(`{"role":"user","content":"%0480d"}`, 0)
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	b.ResetTimer()
	began := b.Elapsed()
	for p := range producers {
		all.Go(func() {
			sub := events.Session("", fmt.Sprintf("p%d", p))
			for left.Add(-1) >= 0 {
				e, err := events.New("urn:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(line)}}})
				if err == nil {
					_, err = l.Append(b.Context(), sub, log.Any, e)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(n) / (b.Elapsed() - began).Seconds()
}

// BenchmarkBatches reports atomic batches of three messages to three subjects per second, each message with an
// expectation, and single messages of the same clients, on three nodes and on one server. The metric "again" is the
// share that the server refused with 10164 although nobody else writes to the subject.
func BenchmarkBatches(b *testing.B) {
	for _, clients := range []int{1, 16} {
		for _, interval := range []string{"always", "2m"} {
			b.Run(fmt.Sprintf("nodes=3/sync=%s/clients=%d", interval, clients), func(b *testing.B) {
				c := mustClusterSyncing(b, interval)
				nc := c.mustConnect(c.nodes[0].url)
				sendBatches(mustBatches(b, nc, nc, "B", 3, true), b, clients)
			})
		}
		b.Run(fmt.Sprintf("nodes=1/sync=2m/clients=%d", clients), func(b *testing.B) {
			p := runPlain(b, b.TempDir())
			sendBatches(mustBatches(b, p.nc, p.nc, "B", 1, true), b, clients)
		})
	}
}

func sendBatches(to *atomicStream, b *testing.B, clients int) {
	var again atomic.Int64
	insist := func(send func() batchAnswer) batchAnswer {
		for {
			a := send()
			if a.code != 10164 {
				if a.code != 0 || a.err != nil {
					b.Error(a)
				}
				return a
			}
			again.Add(1)
		}
	}
	rate := func(send func(client int, last uint64) uint64) float64 {
		var left atomic.Int64
		left.Store(int64(b.N))
		var all sync.WaitGroup
		began := b.Elapsed()
		for i := range clients {
			all.Go(func() {
				for last := uint64(0); left.Add(-1) >= 0; {
					last = send(i, last)
				}
			})
		}
		all.Wait()
		return float64(b.N) / (b.Elapsed() - began).Seconds()
	}
	b.ResetTimer()
	batches := rate(func(client int, last uint64) uint64 {
		list := make([]message, 3)
		for i := range list {
			list[i] = message{subject: fmt.Sprint("many.", client, ".", i), expect: "0"}
			if last > 0 {
				list[i].expect = num(last - 2 + uint64(i))
			}
		}
		return insist(func() batchAnswer { return to.all(list...) }).seq
	})
	single := rate(func(client int, last uint64) uint64 {
		m := to.encode(message{subject: fmt.Sprint("one.", client), expect: num(last)}, nil)
		return insist(func() batchAnswer { return to.ask(m) }).seq
	})
	b.ReportMetric(batches, "batches/s")
	b.ReportMetric(single, "messages/s")
	b.ReportMetric(float64(again.Load())/float64(2*b.N), "again")
}
