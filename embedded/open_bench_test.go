package embedded_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// BenchmarkOpenSession loads sessions of 100 events in a small and in a large log, each in a process that attached to
// a new owner with nothing in memory. The events of a short-lived session are adjacent, those of a spread session lie
// all over the log, and a tenth of the log is one session. The owner's own start is reported separately. TALLY_SOAK
// makes the large log one of ten million events.
func BenchmarkOpenSession(b *testing.B) {
	large := 100_000
	if testkit.Soak() {
		large = 10_000_000
	}
	small := make(map[string]float64)
	for _, count := range []int{10_000, large} {
		b.Run(fmt.Sprint("events=", count), func(b *testing.B) {
			dir := b.TempDir()
			fillSessions(b, dir, count)
			settleViews(b, dir, count)
			took := make(map[string][]time.Duration)
			for b.Loop() {
				for i := range spreadSessions {
					for kind, step := range map[string]int{"short": shortStep(count), "spread": 1} {
						started, loaded := openOne(b, dir, events.Session("", fmt.Sprintf("%s-%d", kind, i*step)))
						took["start"], took[kind] = append(took["start"], started), append(took[kind], loaded)
					}
				}
			}
			for kind, list := range took {
				slices.Sort(list)
				p50 := 1000 * list[len(list)/2].Seconds()
				b.ReportMetric(p50, kind+"-p50-ms")
				b.ReportMetric(1000*list[len(list)*99/100].Seconds(), kind+"-p99-ms")
				switch {
				case kind == "start": // not part of the comparison
				case count < large:
					small[kind] = p50
				default:
					b.ReportMetric(p50/small[kind], kind+"-x-small")
				}
			}
		})
	}
}

// In each log, spreadSessions are spread, one has a tenth of the events, and the others are short-lived.
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

// settleViews brings the views up to date, so that the owner has no other work, and leaves the sessions idle until
// their snapshots are written.
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

// awaitSnapshot waits until a session has a snapshot at its last record. It does not load the session, because that
// would make the projector write one.
func awaitSnapshot(b *testing.B, st *tally.Store, sub events.Subject) {
	b.Helper()
	last, err := st.Log.Last(b.Context(), sub)
	if err != nil {
		b.Fatal(err)
	}
	for {
		kept, err := st.Snapshots().List(b.Context(), sub, projector.SessionFold)
		if err != nil {
			b.Fatal(err)
		}
		if len(kept) > 0 && kept[0].Offset == last.Offset {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// shortStep is the distance between the short-lived sessions that are loaded, so that they lie all over the log: they
// have at least six tenths of the events.
func shortStep(count int) int { return max(1, count/sessionEvents*6/10/spreadSessions) }

// openOne loads a session in a process that attaches to a new owner.
func openOne(b *testing.B, dir string, sub events.Subject) (started, loaded time.Duration) {
	b.Helper()
	began := time.Now()
	owner := mustOpenStore(b, dir, projector.Policy{})
	started = time.Since(began)
	attached := mustOpenStore(b, dir, projector.Policy{})
	began = time.Now()
	s, err := attached.Loader().Session(b.Context(), sub, 0)
	loaded = time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	if n := len(s.Threads.Turns(events.MainThread)); n != sessionEvents {
		b.Fatalf("%s has %d turns", sub, n)
	}
	for _, st := range []*tally.Store{attached, owner} {
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return started, loaded
}

// fillSessions appends turns of 512 bytes. Those of a short-lived session are adjacent; between them lie those of the
// other sessions, one at a time.
func fillSessions(b *testing.B, dir string, count int) {
	b.Helper()
	s, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: dir, Private: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	every := count / (spreadSessions * sessionEvents) // events between two spread ones
	text := strings.Repeat("x", 512)
	var pending []*log.Pending
	spread, short := 0, 0
	for i := range count {
		var id string
		switch {
		case i%every == 0 && spread < spreadSessions*sessionEvents:
			id = fmt.Sprintf("spread-%d", spread%spreadSessions)
			spread++
		case i%10 == 3:
			id = "large"
		default:
			id = fmt.Sprintf("short-%d", short/sessionEvents)
			short++
		}
		p := &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":"%s"}`, text))}}}
		e, err := events.New("urn:bench", events.Session("", id), p)
		if err != nil {
			b.Fatal(err)
		}
		if pending = append(pending, s.Log().AppendAsync(b.Context(), e.Subject, log.Any, e)); len(pending) == 2000 || i == count-1 {
			for _, p := range pending {
				if _, err := p.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			pending = pending[:0]
		}
	}
}
