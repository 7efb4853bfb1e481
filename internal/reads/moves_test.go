package reads

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// A plan that is made has the effect of the session's own move. Made twice, it is one event. After another move or turn
// it is a conflict, and nothing is written.
func TestMoves(t *testing.T) {
	t.Run("W-19 plans and moves", func(t *testing.T) {
		n := 0
		st := storetest.Memory(t, tally.Config{})
		rapid.Check(t, func(t *rapid.T) {
			n++
			a, b := st.Session(fmt.Sprintf("a%d", n)), st.Session(fmt.Sprintf("b%d", n))
			r := Reader{Store: st}
			ctx := t.Context()
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			both := func(text string) {
				for _, s := range []*tally.Session{a, b} {
					_, err := s.AppendTurns(ctx, events.MainThread, []byte(text))
					check(err)
				}
			}
			both(`0`)
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				op := rapid.SampledFrom([]string{"turn", Rewind, Rewind, Undo, Redo}).Draw(t, "op")
				if op == "turn" {
					both(`1`)
					continue
				}
				q := PlanQuery{Session: a.ID(), Op: op}
				if op == Rewind {
					q.To = rapid.SampledFrom([]string{"#1", "~1", "head"}).Draw(t, "to")
				}
				p, err := r.Plan(ctx, q)
				m, same := plan(ctx, b, q)
				if (err == nil) != (same == nil) {
					t.Fatalf("plan: %v, of the session itself: %v", err, same)
				}
				if err != nil {
					continue
				}
				if p.There != m.There || p.Leaves.Count != m.Leaves.Count || p.Returns.Count != m.Returns.Count || len(p.Leaves.First) != min(maxFirst, p.Leaves.Count) {
					t.Fatalf("got plan %+v, want %+v", p, m)
				}
				if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
					both(`2`)
					head, err := st.Log.Head(ctx)
					check(err)
					_, err = r.Move(ctx, MoveQuery{Session: a.ID(), Plan: p})
					if now, _ := st.Log.Head(ctx); !errors.Is(err, log.ErrConflict) || now != head {
						t.Fatalf("a turn came between: got %v, head %v, want a conflict, head %v", err, now, head)
					}
					continue
				}
				ack, err := r.Move(ctx, MoveQuery{Session: a.ID(), Plan: p, Source: "urn:t:door", Actor: "ada"})
				check(err)
				again, err := r.Move(ctx, MoveQuery{Session: a.ID(), Plan: p, Source: "urn:t:door", Actor: "ada"})
				check(err)
				if again.First != ack.First || again.Duplicate != (ack.First != 0) || (ack.First == 0) != p.There {
					t.Fatalf("got %+v, and again %+v, for plan %+v", ack, again, p)
				}
				_, err = b.Move(ctx, m)
				check(err)
				one, err := a.Load(ctx, "")
				check(err)
				two, err := b.Load(ctx, "")
				check(err)
				if diff := cmp.Diff(texts(two), texts(one)); diff != "" {
					t.Fatalf("after %+v (-session +reads):\n%s", p, diff)
				}
			}
		})
	})
}

// texts returns the turns of the main thread.
func texts(s *projector.Session) (list []string) {
	for _, t := range s.Threads.Turns(events.MainThread) {
		list = append(list, string(t.Raw))
	}
	return list
}

// The lists of a limited diff begin like the whole ones, and say how much they leave out. Pages of branches are the whole
// list.
func TestLimits(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	mustTurns(t, s, "a", "b", "c", "d")
	r := Reader{Store: st}
	p, err := r.Plan(t.Context(), PlanQuery{Session: "s", Op: Rewind, To: "#1"})
	must(t, err)
	_, err = r.Move(t.Context(), MoveQuery{Session: "s", Plan: p})
	must(t, err)
	mustTurns(t, st.Session("s"), "e") // the other handle has not seen the move
	whole, err := r.Diff(t.Context(), DiffQuery{Session: "s", From: "@4", To: "head"})
	must(t, err)
	if len(whole.Leaves) != 3 || len(whole.Returns) != 1 || whole.More != nil {
		t.Errorf("got %+v", whole)
	}
	part, err := r.Diff(t.Context(), DiffQuery{Session: "s", From: "@4", To: "head", Limit: 2})
	must(t, err)
	if diff := cmp.Diff(Diff{whole.Leaves[:2], whole.Returns, &More{Leaves: 1}}, part); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, _, err := r.Branches(t.Context(), BranchesQuery{Session: "s"})
	must(t, err)
	var pages []Grown
	q := BranchesQuery{Session: "s", Limit: 4}
	for {
		page, _, err := r.Branches(t.Context(), q)
		must(t, err)
		if pages = append(pages, page.Records...); page.Next == 0 {
			break
		}
		q.After = page.Next
	}
	if len(all.Records) != 6 || len(pages) != 6 {
		t.Fatalf("got %d records, and %d in pages", len(all.Records), len(pages))
	}
	want := []struct {
		state string
		after events.Offset
	}{{"live", 0}, {"rewound", 1}, {"rewound", 2}, {"rewound", 3}, {"rewind", 4}, {"live", 1}}
	for i, g := range pages {
		if g.State != want[i].state || g.After != want[i].after || g.Offset != all.Records[i].Offset {
			t.Errorf("record %d: %+v", i, g)
		}
	}
}
