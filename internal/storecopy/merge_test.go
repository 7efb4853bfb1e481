package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Two stores with a common past are merged in both orders, twice, and there and back.
func TestMergeLaws(t *testing.T) {
	t.Run("X-26 L-10 both orders, twice, there and back", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			draw := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(rt, label) }
			a, b := newMemory(t), newMemory(t)
			common, shared := subjects("common", 3)
			wa, wb := &writer{t: rt, l: a.Log, name: "a", draw: draw}, &writer{t: rt, l: b.Log, name: "b", draw: draw}
			registerHop(rt, a.Log)
			if draw(2, "both have the type") == 0 {
				registerHop(rt, b.Log)
			}
			for range draw(12, "past") {
				wa.step(common, shared)
			}
			bSessions, bDocuments := subjects("b", 3)
			for range draw(5, "b before") {
				wb.step(bSessions, bDocuments)
			}
			merge(rt, a.Log, b.Log)
			aSessions, aDocuments := subjects("a", 3)
			if draw(3, "conflict") > 0 { // each goes on with subjects of its own, and one of the common ones
				aSessions, bSessions = append(aSessions, common[0]), append(bSessions, common[1])
			} else {
				aSessions, bSessions = append(aSessions, common...), append(bSessions, common...)
			}
			for range draw(25, "a") {
				wa.step(aSessions, aDocuments)
			}
			for range draw(25, "b") {
				wb.step(bSessions, bDocuments)
			}

			ab, ba := newMemory(t), newMemory(t)
			_, none := merge(rt, a.Log, ab.Log)
			_, refused := merge(rt, b.Log, ab.Log)
			merge(rt, b.Log, ba.Log)
			_, other := merge(rt, a.Log, ba.Log)
			all := slices.Concat(none.Refused, refused.Refused, other.Refused)
			if none.Refuses > 0 {
				rt.Fatalf("refused by an empty store: %+v", none.Refused)
			}
			same(rt, "the other order", statesByID(rt, ba.Log), statesByID(rt, ab.Log), all...)
			for _, from := range []memory{a, b} {
				for _, to := range []memory{ab, ba} {
					planned, _ := merge(rt, from.Log, to.Log)
					nothing(rt, "a second merge", planned)
				}
			}
			merge(rt, ab.Log, a.Log)
			same(rt, "there and back", statesByID(rt, a.Log), statesByID(rt, ab.Log), all...)
			planned, _ := merge(rt, a.Log, ab.Log)
			nothing(rt, "there and back", planned)
		})
	})
}

func registerHop(t fataler, l *log.Log) {
	t.Helper()
	data, err := registry.Encode(events.Type{Name: hop.Name, Moves: hop.Moves, Offsets: []string{"/target"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(context.Background(), registry.Subject(hop.Name), log.At(0), events.Event{ID: fmt.Sprintf("%p", l), Source: "urn:test", Type: events.TypeDocumentWritten, ContentType: events.ContentTypeJSON, Data: data}); err != nil {
		t.Fatal(err)
	}
}

// made appends the events of a session that begins with its creation.
func (w *writer) made(sub events.Subject, kind string, fork *events.Fork) events.Offset {
	return w.put(sub, &events.SessionCreated{Kind: kind, CreatedAt: noon, Fork: fork})
}

func (w *writer) turn(sub events.Subject, text string) events.Offset {
	return w.put(sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf("%q", text))}}})
}

func newWriter(t testing.TB, name string) (*writer, memory) {
	m := newMemory(t)
	return &writer{t: t, l: m.Log, name: name}, m
}

// refusals returns why subjects were refused, by name.
func refusals(m storecopy.Merge) map[string]string {
	all := make(map[string]string)
	for _, r := range m.Refused {
		all[r.Subject] = r.Why
	}
	return all
}

// Each reason not to merge something is reported, and everything else is merged.
func TestMergeRefuses(t *testing.T) {
	session := func(id string) events.Subject { return events.Session("", id) }
	t.Run("X-31 conflict", func(t *testing.T) {
		wa, a := newWriter(t, "a")
		wb, b := newWriter(t, "b")
		at := wa.made(session("s"), "conversation", nil)
		wa.made(session("fork"), "conversation", &events.Fork{Session: "s", Offset: at})
		wa.made(session("other"), "conversation", nil)
		merge(t, a.Log, b.Log)
		at = wa.turn(session("s"), "mine")
		wb.turn(session("s"), "theirs")
		wa.made(session("late fork"), "conversation", &events.Fork{Session: "s", Offset: at})
		wa.turn(session("other"), "more")
		before := statesByID(t, b.Log)
		for range 2 {
			_, done := merge(t, a.Log, b.Log)
			why := refusals(done)
			if len(why) != 2 || !strings.Contains(why["session s"], "the histories differ: its record 2 is @4 in the original, and another event, @4, in the target") ||
				!strings.Contains(why["session late fork"], "it is a fork of session s, which is not merged") {
				t.Errorf("refused: %v", why)
			}
		}
		after := statesByID(t, b.Log)
		if after["session s"] != before["session s"] || !strings.Contains(after["session other"], "more") || after["session late fork"] != "" {
			t.Errorf("the target has %v", after)
		}
	})
	t.Run("X-31 kinds of work", func(t *testing.T) {
		wa, a := newWriter(t, "a")
		_, b := newWriter(t, "b")
		for _, id := range []string{"queue/q", "item/i", "inbox/x", "flow/f", "lock/l", "agent/a"} {
			wa.turn(session(id), "work")
		}
		wa.made(session("named otherwise"), events.KindQueue, nil)
		wa.put(session("merging"), &events.RunCreated{Run: events.RunRef{Kind: "changeset", ID: "1"}})
		wa.event(events.Document("", "overlay", "o"), events.Event{Type: events.TypeDocumentWritten, Data: []byte("x")})
		wa.made(session("s"), "job", nil)
		planned, done := merge(t, a.Log, b.Log)
		if done.Refuses != 9 || planned.Refuses != 9 || done.Records != 1 {
			t.Errorf("%d refused of %d planned, %d merged: %v", done.Refuses, planned.Refuses, done.Records, done.Refused)
		}
		for name, why := range refusals(done) {
			if !strings.Contains(why, "its work belongs to one store") {
				t.Errorf("%s: %s", name, why)
			}
		}
	})
	t.Run("X-31 damage, invalid, _personal, erased", func(t *testing.T) {
		wa, a := newWriter(t, "a")
		_, b := newWriter(t, "b")
		s := session("s")
		wa.made(s, "conversation", nil)
		lost := wa.made(session("lost"), "conversation", nil)
		a.backend.Damage(lost)
		wa.turn(events.Session(events.PersonalNamespace, "mine"), "canary")
		publish := func(e events.Event) {
			t.Helper()
			out := log.Outgoing{ID: e.MsgID(), Header: events.AppendHeader(nil, e), Data: e.Data}
			if _, err := a.backend.Publish(t.Context(), log.Publication{Writes: []log.Write{{Subject: e.Subject.NATS(), Messages: []log.Outgoing{out}}}}); err != nil {
				t.Fatal(err)
			}
		}
		publish(events.Event{ID: "invalid", Source: "urn:x", Type: events.TypeSessionRewound, Subject: s, Data: []byte(`{}`)})
		publish(events.Event{ID: "timeless", Source: "urn:x", Type: "com.acme.x.v1", Subject: s, Data: []byte(`{}`)})
		e, err := events.New("urn:x", s, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`{"text":"secret secret secret"}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		e.ID = "erased"
		if e, err = e.Erase("r1"); err != nil {
			t.Fatal(err)
		}
		publish(e)
		fresh := logtest.OpenOn(t, a.backend, log.Config{Host: log.Host{Merge: true}}) // it does not remember the subject
		_, done := merge(t, fresh, b.Log)
		planned, _ := merge(t, fresh, b.Log)
		nothing(t, "a second merge", planned)
		if done.Records != 3 || done.Refuses > 0 || planned.Invalid != 1 || planned.Personal != 1 || planned.Losses != 1 || planned.Lost[0] != lost {
			t.Errorf("merged %+v, planned %+v", done, planned)
		}
		n := 0
		for rec, err := range b.Read(t.Context(), events.Range{Subject: s}) {
			if n++; err != nil || n == 2 && !rec.Time.IsZero() || n == 3 && (rec.Erased() != "r1" || string(rec.Data) != string(e.Data)) {
				t.Errorf("%d: %+v, %v", n, rec, err)
			}
		}
	})
	t.Run("a part", func(t *testing.T) {
		wa, a := newWriter(t, "a")
		_, b := newWriter(t, "b")
		doc := wa.event(events.Document("", "recipe", "r"), events.Event{Type: events.TypeDocumentWritten, Data: []byte("x")})
		wa.event(events.Document("", "recipe", "unused"), events.Event{Type: events.TypeDocumentWritten, Data: []byte("x")})
		at := wa.made(session("p"), "conversation", nil)
		wa.made(session("f"), "conversation", &events.Fork{Session: "p", Offset: at})
		wa.put(session("f"), &events.SessionUpdated{Set: events.Fields{{Name: "recipe", Value: events.Raw(fmt.Sprintf("%q", events.RefOf(events.Document("", "recipe", "r"), doc)))}}})
		wa.made(session("else"), "conversation", nil)
		_, done := merge(t, a.Log, b.Log, func(m *storecopy.Merger) {
			m.Sessions, m.Without = []events.Subject{session("f")}, []events.Subject{session("p")}
		})
		if why := refusals(done)["session f"]; !strings.Contains(why, "it is a fork of session p, which is not merged") || done.Refuses != 1 {
			t.Errorf("without its parent: %v", done.Refused)
		}
		if _, done = merge(t, a.Log, b.Log, func(m *storecopy.Merger) { m.Sessions = []events.Subject{session("f")} }); done.Records != 3 || done.Refuses > 0 {
			t.Errorf("merged %+v", done)
		}
		m := &storecopy.Merger{From: a.Log, To: b.Log, Sessions: []events.Subject{session("none")}}
		if _, err := m.Plan(t.Context()); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("a session that does not exist: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		planned, _ := merge(t, a.Log, b.Log, func(m *storecopy.Merger) { m.Namespaces = []string{"elsewhere"} })
		nothing(t, "another namespace", planned)
	})
}

// A merge that is interrupted anywhere goes on, and so does one whose table is lost.
func TestMergeAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	draw := func(n int, _ string) int { return r.IntN(n) }
	wa, a := newWriter(t, "a")
	wa.draw = draw
	sessions, documents := subjects("a", 5)
	registerHop(t, a.Log)
	table := filepath.Join(t.TempDir(), "state", "table.db")
	_, b := newWriter(t, "b")
	keep := func(m *storecopy.Merger) { m.Table = table }
	for round := range 6 {
		for range 60 {
			wa.step(sessions, documents)
		}
		end, err := a.Durable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch round % 3 {
		case 0:
			m := &storecopy.Merger{From: a.Log, To: b.Log, Table: table}
			_, err = m.Plan(t.Context())
			if err == nil {
				m.From = interrupted{a.Log, end - events.Offset(1+r.IntN(40))}
				if _, err = m.Run(t.Context()); errors.Is(err, errKilled) {
					err = nil
				}
			}
			err = errors.Join(err, m.Close())
		case 1:
			err = os.WriteFile(table, []byte("damaged"), 0o600)
		case 2:
			err = os.Remove(table)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, done := merge(t, a.Log, b.Log, keep); done.Refuses > 0 {
			t.Fatalf("round %d: refused %v", round, done.Refused)
		}
		same(t, fmt.Sprint("round ", round), statesByID(t, b.Log), statesByID(t, a.Log))
		planned, _ := merge(t, a.Log, b.Log, keep)
		nothing(t, "again", planned)
	}
	// Another target of the same name: the table is not that of this one.
	_, other := newWriter(t, "c")
	merge(t, a.Log, other.Log, keep)
	same(t, "another target", statesByID(t, other.Log), statesByID(t, a.Log))
}

// A rewind to an offset between two records keeps the checkpoint before it.
func TestMergeBetween(t *testing.T) {
	wa, a := newWriter(t, "a")
	wb, b := newWriter(t, "b")
	wb.made(events.Session("", "own"), "conversation", nil)
	s := events.Session("", "s")
	at := wa.made(s, "conversation", nil)
	between := wa.made(events.Session("", "other"), "conversation", nil)
	wa.put(s, &events.CheckpointSaved{ID: "c", Kind: events.CheckpointRewind, At: at})
	wa.put(s, &events.SessionRewound{To: between})
	merge(t, a.Log, b.Log)
	folded, err := (&projector.Loader{Source: b.Log}).Session(t.Context(), s, 0)
	if err != nil || len(folded.Ledger.Stack) != 1 {
		t.Errorf("the target has the checkpoints %v: %v", folded.Ledger.Stack, err)
	}
}

// A stale turn is stale in the target, because its basis is translated.
func TestMergeBasis(t *testing.T) {
	wa, a := newWriter(t, "a")
	wb, b := newWriter(t, "b")
	for i := range 6 {
		wb.made(events.Session("", fmt.Sprint("own", i)), "conversation", nil)
	}
	s := events.Session("", "s")
	at := wa.made(s, "conversation", nil)
	basis := wa.turn(s, "rewound")
	wa.put(s, &events.SessionRewound{To: at})
	wa.put(s, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"stale"`)}}}, func(e *events.Event) { *e = e.WithExtension(events.ExtBasis, basis.Padded()) })
	merge(t, a.Log, b.Log)
	folded, err := (&projector.Loader{Source: b.Log}).Session(t.Context(), s, 0)
	if err != nil || len(folded.Ledger.Stale) != 1 || len(folded.Threads) != 0 {
		t.Errorf("stale in the target: %v, threads %v: %v", folded.Ledger.Stale, folded.Threads, err)
	}
}

// An append to several subjects is one in the target, too.
func TestMergeUnits(t *testing.T) {
	from := mustStart(t, t.TempDir(), false).Log()
	fill(t, from, rand.New(rand.NewPCG(4, 2)), 120)
	srv, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: t.TempDir(), Private: true, Merge: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, srv) })
	w := &writer{t: t, l: srv.Log(), name: "own"}
	w.made(events.Session("", "own"), "conversation", nil)
	_, done := merge(t, from, srv.Log())
	if done.Refuses > 0 {
		t.Errorf("refused: %v", done.Refused)
	}
	units := func(l *log.Log) (n int) {
		for rec, err := range l.Read(t.Context(), events.Range{Kind: events.KindUnit}) {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(rec.Data), "canary-personal") {
				n++
			}
		}
		return n
	}
	if have, want := units(srv.Log()), units(from); have != want || want == 0 {
		t.Errorf("the target has %d appends to several subjects, the original %d", have, want)
	}
	planned, _ := merge(t, from, srv.Log())
	nothing(t, "again", planned)
}
