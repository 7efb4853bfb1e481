package projector_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// threadsOf reads all turns of a session at an earlier offset.
func threadsOf(t interface {
	Context() context.Context
	Fatal(...any)
	Helper()
}, p *projector.Past) projector.Threads {
	t.Helper()
	threads := make(projector.Threads)
	for _, name := range p.Names() {
		turns, err := p.Last(t.Context(), name, p.Len(name)+1)
		if err != nil {
			t.Fatal(err)
		}
		threads[name] = &projector.Thread{Turns: turns, Meta: p.Meta(name)}
	}
	return threads
}

// looked is a session that is opened at its head.
type looked struct {
	*projector.Outline
	log     testkit.Records
	history []events.Record           // inherited ones first
	then    map[int]projector.Threads // the threads after each number of records that was asked for
}

// drawLooked opens one of many sessions, with snapshots at random offsets, parts of which may be lost.
func drawLooked(t *rapid.T) *looked {
	b := drawBorders(t, nil)
	if rapid.Bool().Draw(t, "rewound") {
		b = drawRewound(t, func(*rewound) {}).borders
	} else {
		b.log = testkit.History().Draw(t, "log")
		for range rapid.IntRange(0, 3).Draw(t, "cuts") {
			b.cut(t, drawRecord(t, b.log))
		}
	}
	store := &rotting{}
	for m := range b.store.All(t.Context()) {
		if snap, err := b.store.Get(t.Context(), m); err != nil || store.Put(t.Context(), snap) != nil {
			t.Fatal("a snapshot cannot be copied")
		}
	}
	o, err := b.loader(store).Outline(t.Context(), drawSession(t, b.log), 0)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
		spoilPart(t, store)
	}
	return &looked{o, b.log, modelOf(b.log, o.Subject().ID, 0).history, make(map[int]projector.Threads)}
}

// at returns the last record at or below an offset, and the threads of a fold that ends there. Below the first own record
// of a fork, they are its parent's.
func (l *looked) at(t *rapid.T, at events.Offset) (last events.Offset, threads projector.Threads) {
	n := 0
	for n < len(l.history) && l.history[n].Offset <= at {
		n++
	}
	if n == 0 {
		return 0, make(projector.Threads)
	}
	rec := l.history[n-1]
	if l.then[n] == nil {
		l.then[n] = mustLoad(t, &projector.Loader{Source: l.log}, rec.Subject, rec.Offset).Threads
	}
	return rec.Offset, l.then[n]
}

// mustBack looks back from the head.
func (l *looked) mustBack(t *rapid.T, at events.Offset) (*projector.Past, projector.Threads) {
	t.Helper()
	p, err := l.Back(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	last, want := l.at(t, at)
	got := threadsOf(t, p)
	if p.Offset() != last || fmt.Sprint(got.Names()) != fmt.Sprint(want.Names()) {
		t.Fatalf("%s at %v: got threads %q after %v, want %q after %v", l.Subject(), at, got.Names(), p.Offset(), want.Names(), last)
	}
	for name, th := range want {
		if fmt.Sprint(*got[name]) != fmt.Sprint(*th) || p.Len(name) != len(th.Turns) {
			t.Fatalf("%s at %v, thread %s: got %d turns %v, want %v", l.Subject(), at, name, p.Len(name), *got[name], *th)
		}
	}
	return p, want
}

// The threads at every earlier offset equal a fold that ends there, and the turns that a move between two offsets takes
// and brings back equal those of a comparison turn by turn.
func TestPast(t *testing.T) {
	t.Run("W-02 looking back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			l := drawLooked(t)
			for at := range l.log[len(l.log)-1].Offset + 2 {
				l.mustBack(t, at)
			}
		})
	})
	t.Run("W-03 changes without reading turns", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			l := drawLooked(t)
			for range 4 {
				var ends [2]*projector.Past
				var threads [2]projector.Threads
				for i := range ends {
					ends[i], threads[i] = l.mustBack(t, events.Offset(rapid.Uint64Range(0, uint64(l.log[len(l.log)-1].Offset)).Draw(t, "at")))
				}
				leaves, returns := projector.Changes(ends[0], ends[1])
				wantLeaves, wantReturns := projector.ChangesOf(threads[0], threads[1])
				mustHave(t, "leave", leaves, wantLeaves)
				mustHave(t, "return", returns, wantReturns)
				if equal, err := ends[0].Equal(t.Context(), ends[1]); err != nil || equal != (threads[0].Hash() == threads[1].Hash()) {
					t.Fatalf("equal: got %v, %v of %v and %v", equal, err, modelView(threads[0]), modelView(threads[1]))
				}
			}
		})
	})
}

func mustHave(t *rapid.T, what string, turns projector.Turns, want []projector.TurnAt) {
	t.Helper()
	var got []projector.TurnAt
	for turn, err := range turns.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, turn)
	}
	if turns.Count != len(want) || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%d turns %s: %v, want %d: %v", turns.Count, what, got, len(want), want)
	}
}

// Goroutines may look back from one outline, also in a session of many threads.
func TestPastConcurrently(t *testing.T) {
	st := &story{t: t}
	for n := range 40 {
		st.add(s1, turnOf(fmt.Sprint("t", n%20), n))
	}
	store := &snapshot.Mem{}
	loader := func() *projector.Loader {
		return (&projector.Loader{Source: st.records, Snapshots: store}).SetChunks(4, 2)
	}
	if _, err := loader().Keep(t.Context(), s1, 0, ""); err != nil {
		t.Fatal(err)
	}
	o, err := loader().Outline(t.Context(), s1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for at := range events.Offset(40) {
		readers.Go(func() {
			p, err := o.Back(t.Context(), at)
			if err != nil || p.Offset() != at || len(p.Names()) != min(int(at), 20) {
				t.Errorf("%v: got %+v, %v, want %d threads", at, p, err, min(at, 20))
				return
			}
			if leaves, returns := projector.Changes(&o.Past, p); leaves.Count != 40-int(at) || returns.Count != 0 {
				t.Errorf("%v: %d turns leave and %d return, want %d and none", at, leaves.Count, returns.Count, 40-at)
			}
		})
	}
	readers.Wait()
}
