package embedded_test

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/catalog"
)

// BenchmarkOpenSession loads sessions of 100 events in a small and in a large log, in
// a process that attached to an owner that has just begun and so has nothing in
// memory. Short-lived sessions have their events side by side, spread ones over the
// whole log. What the owner's own start takes is reported apart. TALLY_SOAK makes
// the large log one of a million events.
func BenchmarkOpenSession(b *testing.B) {
	large := 100_000
	if os.Getenv("TALLY_SOAK") != "" {
		large = 1_000_000
	}
	for _, count := range []int{10_000, large} {
		b.Run(fmt.Sprint("events=", count), func(b *testing.B) {
			dir := b.TempDir()
			fillSessions(b, dir, count)
			settleViews(b, dir, count)
			for b.Loop() {
				began := time.Now()
				owner := mustOpenStore(b, dir, projector.Policy{})
				b.ReportMetric(time.Since(began).Seconds()*1000, "start-ms")
				attached := mustOpenStore(b, dir, projector.Policy{})
				for _, kind := range []string{"short", "spread"} {
					reportLoads(b, attached, kind)
				}
				if err := attached.Close(); err != nil {
					b.Fatal(err)
				}
				if err := owner.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Of each log, spreadSessions are spread, and the others short-lived.
const (
	sessionEvents  = 100
	spreadSessions = 20
)

func mustOpenStore(b *testing.B, dir string, policy projector.Policy) *tally.Store {
	b.Helper()
	st, err := embedded.Open(b.Context(), embedded.Options{Backend: "local", Store: dir, Policy: policy, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return st
}

// settleViews brings the views up to date, so that the owner has nothing else to do,
// and has the sessions rest until their states are kept.
func settleViews(b *testing.B, dir string, count int) {
	b.Helper()
	st := mustOpenStore(b, dir, projector.Policy{Age: 100 * time.Millisecond})
	for _, view := range []string{"catalog", "search"} {
		if err := catalog.Wait(b.Context(), dir, view, events.Offset(count)); err != nil {
			b.Fatal(err)
		}
	}
	for i := range spreadSessions {
		awaitSnapshot(b, st, events.Session("", fmt.Sprintf("spread-%d", i)))
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}

func awaitSnapshot(b *testing.B, st *tally.Store, sub events.Subject) {
	b.Helper()
	for {
		s, err := st.Loader().Session(b.Context(), sub, 0)
		if err != nil {
			b.Fatal(err)
		}
		kept, err := st.Snapshots().List(b.Context(), sub, projector.SessionFold)
		if err != nil {
			b.Fatal(err)
		}
		if len(kept) > 0 && kept[0].Offset == s.Offset() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// reportLoads loads sessions of one kind, each once.
func reportLoads(b *testing.B, st *tally.Store, kind string) {
	b.Helper()
	var took []time.Duration
	for i := range spreadSessions {
		began := time.Now()
		s, err := st.Loader().Session(b.Context(), events.Session("", fmt.Sprintf("%s-%d", kind, i)), 0)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		if n := len(s.Threads.Turns(events.MainThread)); n != sessionEvents {
			b.Fatalf("%s-%d has %d turns", kind, i, n)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, kind+"-p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, kind+"-worst-ms")
}

// fillSessions appends turns of 512 bytes: of one kind of session those of each
// together, and between them one of the other kind at a time.
func fillSessions(b *testing.B, dir string, count int) {
	b.Helper()
	s, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: dir, Private: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	every := count / (spreadSessions * sessionEvents) // a spread event follows so many others
	text := strings.Repeat("x", 512)
	var pending []*log.Pending
	spread, short := 0, 0
	for i := range count {
		id := fmt.Sprintf("spread-%d", spread%spreadSessions)
		if i%every == 0 && spread < spreadSessions*sessionEvents {
			spread++
		} else {
			id = fmt.Sprintf("short-%d", short/sessionEvents)
			short++
		}
		p := &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":"%s"}`, text))}}}
		e, err := events.New("urn:bench", events.Session("", id), p)
		if err != nil {
			b.Fatal(err)
		}
		if pending = append(pending, s.Log().AppendAsync(b.Context(), e.Subject, log.Any, e)); len(pending) == 1000 || i == count-1 {
			for _, p := range pending {
				if _, err := p.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			pending = pending[:0]
		}
	}
}
