package projector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

func TestMain(m *testing.M) {
	testkit.Checks(100) // the default of rapid
	goleak.VerifyTestMain(m)
}

// story is a log that a test writes by hand.
type story struct {
	t       testing.TB
	records testkit.Records
}

func (st *story) add(sub events.Subject, p events.Payload) events.Offset {
	st.t.Helper()
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		st.t.Fatal(err)
	}
	return st.event(e)
}

func (st *story) event(e events.Event) events.Offset {
	at := events.Offset(len(st.records) + 1)
	if e.ID == "" {
		e.ID = fmt.Sprintf("event-%d", at)
	}
	st.records = append(st.records, events.Record{Event: e, Offset: at, Recorded: time.Date(2026, 1, 1, 0, 0, int(at), 0, time.UTC)})
	return at
}

func aTurn(text string) *events.TurnAppended {
	return &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(fmt.Sprintf("%q", text))}}}
}

func created() *events.SessionCreated {
	return &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z"}
}

var s1, s2 = events.Session("", "s1"), events.Session("", "s2")

// damaged is a source in which some records cannot be read.
type damaged struct {
	testkit.Records
	at []events.Offset
}

func (d damaged) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range d.Records.Read(ctx, r) {
			if err == nil && slices.Contains(d.at, rec.Offset) {
				rec, err = events.Record{}, &events.DamageError{Offset: rec.Offset}
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func (d damaged) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	if slices.Contains(d.at, at) {
		return events.Record{}, &events.DamageError{Offset: at}
	}
	return d.Records.Record(ctx, at)
}

// warnings collects log messages.
type warnings struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (w *warnings) logger() *slog.Logger                     { return slog.New(w) }
func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *warnings) WithGroup(string) slog.Handler            { return w }
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
	return nil
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func mustSession(t *testing.T, l *projector.Loader, sub events.Subject, at events.Offset) *projector.Session {
	t.Helper()
	s, err := l.Session(t.Context(), sub, at)
	hole, isHole := errors.AsType[*projector.HoleError](err)
	if isHole != (s != nil && len(s.Damaged) > 0) || isHole && hole.Damaged[0] != slices.Min(s.Damaged) {
		t.Fatalf("got error %v for session %v, want a *HoleError exactly if records are damaged", err, s)
	}
	if projector.Tolerate(err) != nil {
		t.Fatal(err)
	}
	return s
}

// mustHead stores the chunks of a session as of an offset and returns the head.
func mustHead(t *testing.T, src projector.Source, st snapshot.Store, sub events.Subject, at events.Offset) snapshot.Snapshot {
	t.Helper()
	snap, err := (&projector.Loader{Source: src, Snapshots: st}).SetChunks(2, 2).Head(t.Context(), sub, at, "")
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// snapshotsIn lists the snapshots of a store, oldest first.
func snapshotsIn(t *testing.T, st snapshot.Store, sub events.Subject) []snapshot.Meta {
	t.Helper()
	list, err := st.List(t.Context(), sub, projector.SessionFold)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

// snapshotOffsets returns the offsets of a session's snapshots. Those that are kept for a reason are negative.
func snapshotOffsets(t *testing.T, st snapshot.Store, sub events.Subject) []int {
	t.Helper()
	list := []int{}
	for _, m := range snapshotsIn(t, st, sub) {
		if m.Kept != "" {
			list = append(list, -int(m.Offset))
		} else {
			list = append(list, int(m.Offset))
		}
	}
	return list
}
