package log_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// BenchmarkAppend appends 512-byte turns on a server that syncs each of them.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []struct {
		name string
		sync bool
	}{{"sync", true}, {"buffered", false}} {
		for _, producers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/producers=%d", mode.name, producers), func(b *testing.B) {
				s := mustServe(b, b.TempDir(), func(o *server.Options) { o.SyncAlways = mode.sync })
				l := mustOpen(b, mustDial(b, s), log.Config{Host: log.Host{Reads: mustDial(b, s)}})
				text := strings.Repeat("x", 512)
				var n atomic.Int64
				b.SetParallelism((producers + 1) / 2)
				if producers == 1 {
					for b.Loop() {
						mustAppend(b, l, events.Session("", "s"), note("", text))
					}
				} else {
					b.RunParallel(func(pb *testing.PB) {
						sub := events.Session("", fmt.Sprint("s", n.Add(1)))
						for pb.Next() {
							mustAppend(b, l, sub, note("", text))
						}
					})
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkRead reads 100,000 events of 100 sessions: the whole log, a namespace,
// one session of a thousand, forwards and backwards.
func BenchmarkRead(b *testing.B) {
	s := mustServe(b, b.TempDir(), nil)
	l := mustOpen(b, mustDial(b, s), log.Config{Host: log.Host{Reads: mustDial(b, s)}})
	text := strings.Repeat("x", 512)
	evs := make([]events.Event, events.MaxAppend)
	for n := range 1000 {
		sub := events.Session("", fmt.Sprint("s", n%100))
		for i := range evs[:100] {
			evs[i] = note("", text)
		}
		mustAppend(b, l, sub, evs[:100]...)
	}
	one := events.Session("", "s7")
	for _, c := range []struct {
		name string
		back bool
		r    events.Range
	}{
		{"all", false, events.Range{}},
		{"namespace", false, events.Range{Namespace: "default"}},
		{"session", false, events.Range{Subject: one}},
		{"session-last10", true, events.Range{Subject: one, Limit: 10}},
		{"session-empty-tail", false, events.Range{Subject: one, After: 99_999}},
		{"all-back", true, events.Range{}},
		{"all-last10", true, events.Range{Limit: 10}},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				read := l.Read
				if c.back {
					read = l.ReadBack
				}
				for _, err := range read(b.Context(), c.r) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
