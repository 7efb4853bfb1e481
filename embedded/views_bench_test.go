package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// BenchmarkRebuild folds a log into each view and, in the same run, reads it by an ordered consumer without decoding.
// Most sessions are short-lived; a tenth are spread over the whole log.
func BenchmarkRebuild(b *testing.B) {
	const count = 200_000
	s, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fillLog(b, s.Log(), count)
	silent := slog.New(slog.DiscardHandler)
	for b.Loop() {
		raw := ratePerSecond(count, func() { readRaw(b, s, count) })
		list, search := catalog.New(b.TempDir(), render.Opening, silent), catalog.NewSearch(b.TempDir(), render.Said, silent)
		folded := ratePerSecond(count, func() { catchUp(b, s.Log(), list) })
		b.ReportMetric(raw, "raw/s")
		b.ReportMetric(folded, "catalog/s")
		b.ReportMetric(folded/raw, "x-raw")
		b.ReportMetric(ratePerSecond(count, func() { catchUp(b, s.Log(), search) }), "search/s")
		if err := errors.Join(list.Close(), search.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

func catchUp(b *testing.B, l *log.Log, v projector.View) {
	b.Helper()
	if err := (&projector.Runner{Log: l, View: v}).CatchUp(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
}

func ratePerSecond(n int, do func()) float64 {
	began := time.Now()
	do()
	return float64(n) / time.Since(began).Seconds()
}

// fillLog appends turns of 512 bytes and some costs, a batch at a time.
func fillLog(b *testing.B, l *log.Log, n int) {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	words := strings.Fields(strings.Repeat("flour butter sugar berry lemon sponge order table window answer tomorrow quietly ", 8))
	var pending []*log.Pending
	for i := range n {
		id := fmt.Sprintf("short-%d", i/100)
		if r.IntN(10) == 0 {
			id = fmt.Sprintf("long-%d", r.IntN(n/1000))
		}
		var p events.Payload = &events.CostAccrued{Model: "m", USD: "0.0125", Tokens: &events.Tokens{Input: 100, Output: 10}, Purpose: "run", Source: "reported"}
		if i%10 != 0 {
			text := strings.Join(words[r.IntN(20):20+r.IntN(50)], " ")
			p = &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":"%s %d"}`, text, i))}}}
		}
		e, err := events.New("urn:bench", events.Session("", id), p)
		if err != nil {
			b.Fatal(err)
		}
		pending = append(pending, l.AppendAsync(b.Context(), e.Subject, log.Any, e))
		if len(pending) == 1000 || i == n-1 {
			for _, p := range pending {
				if _, err := p.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			pending = pending[:0]
		}
	}
}

// readRaw reads messages from an ordered consumer.
func readRaw(b *testing.B, s *embedded.Server, n int) {
	b.Helper()
	var owner struct{ User, Token string }
	text, err := os.ReadFile(filepath.Join(s.Dir(), "owner.json"))
	if err == nil {
		err = json.Unmarshal(text, &owner)
	}
	if err != nil {
		b.Fatal(err)
	}
	nc, err := nats.Connect(s.URL(), nats.UserInfo(owner.User, owner.Token))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	cons, err := js.OrderedConsumer(b.Context(), "TALLY_1", jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	msgs, err := cons.Messages(jetstream.PullMaxMessages(8192))
	if err != nil {
		b.Fatal(err)
	}
	defer msgs.Stop()
	for range n {
		if _, err := msgs.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVisible appends a thousand turns a second and reports the time from each acknowledgement until a reader of
// the catalog sees the turn.
func BenchmarkVisible(b *testing.B) {
	dir := b.TempDir()
	st, err := embedded.Open(b.Context(), embedded.Options{Backend: "local", Store: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	const perSecond = 1000
	acks := make(chan log.Ack, 1<<16)
	type seen struct {
		at   events.Offset
		when time.Time
	}
	acked := make(chan seen, 1<<16)
	go func() {
		for a := range acks {
			acked <- seen{a.Last, time.Now()}
		}
		close(acked)
	}()
	delays := make(chan []time.Duration)
	go func() {
		var list []time.Duration
		for x := range acked {
			if err := catalog.Wait(b.Context(), dir, "catalog", x.at); err != nil {
				b.Error(err)
			}
			list = append(list, time.Since(x.when))
		}
		delays <- list
	}()
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for i := range max(b.N, 5*perSecond) {
		<-tick.C
		sub := events.Session("", fmt.Sprintf("s%d", i%50))
		e, err := events.New("urn:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`{"role":"user","content":"hello"}`)}}})
		if err != nil {
			b.Fatal(err)
		}
		p := st.Log.AppendAsync(b.Context(), sub, log.Any, st.Stamp(e))
		go func() {
			if a, err := p.Wait(b.Context()); err == nil {
				acks <- a
			}
		}()
	}
	time.Sleep(time.Second)
	close(acks)
	list := <-delays
	slices.Sort(list)
	b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(list[len(list)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkAppendBesideViews reports durable appends of 512-byte turns per second in a store that keeps its views;
// each producer waits for its acknowledgement.
func BenchmarkAppendBesideViews(b *testing.B) {
	for _, producers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			st, err := embedded.Open(b.Context(), embedded.Options{Backend: "local", Store: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(appendsTo(b, st.Log, producers, b.N*producers), "appends/s")
			if err := st.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
