package storecopy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// memory is a store in memory that can be merged into.
type memory struct {
	*log.Log
	backend *memlog.Backend
}

func newMemory(t testing.TB) memory {
	b := memlog.New(memlog.Config{})
	return memory{logtest.OpenOn(t, b, log.Config{Host: log.Host{Merge: true}}), b}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// writer appends random events to a store.
type writer struct {
	t     fataler
	l     *log.Log
	name  string // of the store, which its ids and new sessions have
	draw  func(n int, label string) int
	count int
}

func (w *writer) put(sub events.Subject, p events.Payload, change ...func(*events.Event)) events.Offset {
	w.t.Helper()
	e, err := events.New("urn:test:"+w.name, sub, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.event(sub, e, change...)
}

func (w *writer) event(sub events.Subject, e events.Event, change ...func(*events.Event)) events.Offset {
	w.t.Helper()
	w.count++
	e.Source, e.Subject, e.ID, e.Time = "urn:test:"+w.name, sub, fmt.Sprint(w.name, w.count), time.Unix(int64(w.count), 0).UTC()
	for _, c := range change {
		c(&e)
	}
	last, err := w.l.Last(context.Background(), sub)
	if err != nil && !errors.Is(err, events.ErrNotFound) {
		w.t.Fatal(err)
	}
	ack, err := w.l.Append(context.Background(), sub, log.At(last.Offset), e)
	if err != nil {
		w.t.Fatalf("%s: %v", sub.Name(), err)
	}
	return ack.Last
}

var (
	hop  = events.Define[hopped]("com.acme.hopped.v1", events.WithThread)
	noon = events.TimestampOf(time.Unix(1e9, 0))
)

type hopped struct {
	Target events.Offset `json:"target"`
}

// step appends one random event to a session or a document of the store.
func (w *writer) step(sessions, documents []events.Subject) {
	l, draw := w.l, w.draw
	some := func(list []events.Subject) events.Subject { return list[draw(len(list), "subject")] }
	var own []events.Offset
	sub := some(sessions)
	for rec, err := range l.Read(context.Background(), events.Range{Subject: sub}) {
		if err != nil {
			w.t.Fatal(err)
		}
		own = append(own, rec.Offset)
	}
	head, err := l.Head(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"n":%d}`, w.count))}}}
	if len(own) == 0 {
		made := &events.SessionCreated{Kind: "conversation", CreatedAt: noon}
		if source := some(sessions); source != sub && draw(2, "fork") == 0 {
			if last, err := l.Last(context.Background(), source); err == nil {
				made.Fork = &events.Fork{Session: source.ID, Offset: last.Offset + events.Offset(draw(int(head-last.Offset)+1, "behind"))}
				made.Parent = &events.Lineage{Session: source.ID, Offset: last.Offset}
			}
		}
		w.put(sub, made)
		return
	}
	below := func() events.Offset { return 1 + events.Offset(draw(int(head), "offset")) }
	switch draw(11, "event") {
	case 0:
		to := own[draw(len(own), "to")]
		if draw(3, "anywhere") == 0 { // also in what a fork inherits, or before everything
			s, err := (&projector.Loader{Source: l}).Session(context.Background(), sub, 0)
			if err != nil {
				w.t.Fatal(err)
			}
			to = below()
			if at := s.History.At(to); at > 0 {
				to = at
			}
		}
		w.put(sub, &events.SessionRewound{To: to})
	case 1:
		for rec, err := range l.ReadBack(context.Background(), events.Range{Subject: sub}) {
			if err == nil && rec.Type == events.TypeSessionRewound {
				p, err := events.DecodeAs[events.SessionRewound](rec.Event)
				if err != nil {
					w.t.Fatal(err)
				}
				w.put(sub, &events.SessionRewound{To: own[max(slices.Index(own, rec.Offset)-1, 0)], Undoes: rec.Offset, Reason: fmt.Sprint("instead of ", p.Checkpoint)})
				break
			}
		}
	case 2:
		w.put(sub, &events.CheckpointSaved{ID: fmt.Sprint("c", w.count), Kind: events.CheckpointRewind, At: min(below(), head)})
	case 3:
		doc := some(documents)
		meta := events.DocMeta{Title: "t"}
		if last, err := l.Last(context.Background(), doc); err == nil {
			meta.Base = last.Offset
		}
		w.event(doc, events.Event{Type: events.TypeDocumentWritten, Data: fmt.Appendf(nil, "text %d", w.count)}.WithExtension(events.ExtDoc, meta.String()))
	case 4:
		doc := some(documents)
		if last, err := l.Last(context.Background(), doc); err == nil {
			w.put(sub, &events.SessionUpdated{Set: events.Fields{{Name: "recipe", Value: events.Raw(fmt.Sprintf("%q", events.RefOf(doc, last.Offset)))},
				{Name: "cursors", Value: events.Raw(fmt.Sprintf(`{"main": %d}`, own[draw(len(own), "cursor")]))}}})
		}
	case 5:
		run := events.RunRef{Kind: "turn", ID: "r"}
		start := w.put(sub, &events.RunStarted{Run: run, Worker: "w"})
		if draw(2, "again") == 0 {
			w.put(sub, &events.RunStarted{Run: run, Worker: "v"})
		}
		w.put(sub, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw("1"), Fence: start, Judged: &events.Judged{Offset: own[0], Threads: map[string]events.JudgedThread{}}})
	case 6:
		e, err := hop.New(sub, hopped{own[draw(len(own), "target")]})
		if err != nil {
			w.t.Fatal(err)
		}
		w.event(sub, e)
	case 7:
		w.put(sub, turn, func(e *events.Event) { *e = e.WithExtension(events.ExtBasis, below().Padded()) })
	case 8:
		other := some(sessions)
		last := [2]events.Record{}
		for i, s := range []events.Subject{sub, other} {
			last[i], _ = l.Last(context.Background(), s)
		}
		if other == sub || last[1].Offset == 0 {
			return
		}
		var parts []log.Part
		for i, s := range []events.Subject{sub, other} {
			var evs []events.Event
			for range 1 + draw(2, "more") {
				w.count++
				e, err := events.New("urn:test:"+w.name, s, turn)
				if err != nil {
					w.t.Fatal(err)
				}
				e.ID, e.Time = fmt.Sprint(w.name, w.count), time.Unix(int64(w.count), 0).UTC()
				evs = append(evs, e)
			}
			parts = append(parts, log.Part{Subject: s, Expect: log.At(last[i].Offset), Events: evs})
		}
		if _, err := l.AppendAll(context.Background(), parts...); err != nil {
			w.t.Fatal(err)
		}
	default:
		w.put(sub, turn)
	}
}

func subjects(name string, n int) (sessions, documents []events.Subject) {
	for i := range n {
		sessions = append(sessions, events.Session("", fmt.Sprint(name, i)))
	}
	return sessions, []events.Subject{events.Document("", "recipe", name), events.Document("", "doc", name+"/x y")}
}

// merge merges a store into another one as the command does.
func merge(t fataler, a, b *log.Log, change ...func(*storecopy.Merger)) (planned, done storecopy.Merge) {
	t.Helper()
	m := &storecopy.Merger{From: a, To: b, Loader: &projector.Loader{Source: a}}
	for _, c := range change {
		c(m)
	}
	planned, err := m.Plan(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if done, err = m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	v, err := m.Verify(context.Background())
	if err := errors.Join(err, m.Close()); err != nil {
		t.Fatal(err)
	}
	if v.Differ > 0 {
		t.Fatalf("after the merge %d subjects differ: %+v", v.Differ, v.Differences)
	}
	return planned, done
}

// statesByID returns the state of each subject with the ids of events in the place of offsets, by code that does not
// know how a merge translates.
func statesByID(t fataler, l *log.Log) map[string]string {
	t.Helper()
	ids, first := make(map[events.Offset]string), make(map[string]events.Offset)
	all := make(map[string][]events.Record)
	for rec, err := range events.Readable(l.Read(context.Background(), events.Range{})) {
		if err != nil {
			t.Fatal(err)
		}
		name := rec.Subject.Name()
		ids[rec.Offset], all[name] = rec.ID, append(all[name], rec)
		if first[name] == 0 {
			first[name] = rec.Offset
		}
	}
	states := make(map[string]string)
	load := &projector.Loader{Source: l}
	for name, records := range all {
		var text strings.Builder
		sub := records[0].Subject
		if sub.Kind == events.KindType {
			continue // each store registers a type by itself
		}
		if !sub.IsSession() {
			for _, rec := range records {
				meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc])
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&text, "%s %s of %s\n", rec.ID, rec.Data, ids[meta.Base])
			}
			states[name] = text.String()
			continue
		}
		s, err := load.Session(context.Background(), sub, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A rewind to before everything is left out.
		for _, r := range s.Ledger.Rejected {
			if strings.Contains(r.Reason, "before the session's first record") {
				i := slices.IndexFunc(records, func(rec events.Record) bool { return rec.Offset == r.Offset })
				ids[r.Offset] = ids[records[i-1].Offset]
				records = slices.Delete(records, i, i+1)
			}
		}
		below := func(at events.Offset) string { return ids[s.History.At(at)] }
		for _, thread := range slices.Sorted(maps.Keys(s.Threads)) {
			for _, turn := range s.Threads[thread].Turns {
				fmt.Fprintf(&text, "%s: %s of %s\n", thread, turn.Raw, ids[turn.Offset])
			}
		}
		for _, rec := range records {
			fmt.Fprintf(&text, "%s live %t\n", rec.ID, s.History.IsLive(rec.Offset))
			if rec.Type == hop.Name {
				h, _, err := hop.In(rec.Event)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&text, "to %s\n", below(h.Target))
			}
		}
		for _, r := range s.Ledger.Rewinds {
			fmt.Fprintf(&text, "rewind %s to %s undoes %s before %s\n", ids[r.Offset], below(r.To), ids[r.Undoes], ids[r.Before])
		}
		for _, c := range s.Ledger.Checkpoints {
			fmt.Fprintf(&text, "checkpoint %s at %s\n", c.ID, below(c.At))
		}
		for _, r := range s.Ledger.Runs {
			fmt.Fprintf(&text, "run %s claim %s results %d\n", r.ID, ids[r.Claim], len(r.Results))
			for _, at := range r.Fenced {
				fmt.Fprintf(&text, "fenced %s\n", ids[at])
			}
			for _, x := range r.Results {
				fmt.Fprintf(&text, "result %s judged %s\n", ids[x.Offset], below(x.Judged.Offset))
			}
		}
		for _, at := range s.Ledger.Stale {
			fmt.Fprintf(&text, "stale %s\n", ids[at])
		}
		if f := s.Ledger.Fork; f != nil {
			source, err := load.Session(context.Background(), events.Session(sub.Namespace, f.Session), f.Offset)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, "fork of %s at %s\n", f.Session, ids[source.Offset()])
		}
		for _, f := range s.Ledger.Fields {
			var cursors map[string]events.Offset
			var ref events.DocRef
			if f.Name == "cursors" && json.Unmarshal(f.Value, &cursors) == nil {
				fmt.Fprintf(&text, "cursor %s\n", below(cursors["main"]))
			} else if f.Name == "recipe" && json.Unmarshal(f.Value, &ref) == nil {
				doc, at, _ := ref.Parse("")
				fmt.Fprintf(&text, "recipe %s %s\n", doc.Name(), ids[at])
			}
		}
		states[name] = text.String()
	}
	return states
}

// same compares states of subjects, but for those of refused ones.
func same(t fataler, what string, have, want map[string]string, refused ...storecopy.Refusal) {
	t.Helper()
	have, want = maps.Clone(have), maps.Clone(want)
	for _, r := range refused {
		delete(have, r.Subject)
		delete(want, r.Subject)
	}
	for name := range want {
		if have[name] != want[name] {
			t.Fatalf("%s: %s is\n%s\nwant\n%s", what, name, have[name], want[name])
		}
	}
	if len(have) != len(want) {
		t.Fatalf("%s: %d subjects, want %d", what, len(have), len(want))
	}
}

// nothing fails if a merge had something to do.
func nothing(t fataler, what string, planned storecopy.Merge) {
	t.Helper()
	if planned.Records > 0 {
		t.Fatalf("%s: %d new records in %d subjects", what, planned.Records, planned.Subjects)
	}
}

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
