package storecopy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
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
