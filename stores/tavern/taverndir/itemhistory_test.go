package taverndir_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

func older(before, files map[string]string) map[string]string {
	if before == nil {
		return files
	}
	return before
}

// states returns the state, the history and the body of each item of a queue.
func states(t testing.TB, st *tally.Store, queue string) map[string]string {
	t.Helper()
	q, all := tavern.QueueOf(st, queue), make(map[string]string)
	list, _, err := q.List(t.Context(), tavern.ListQuery{States: []tavern.ItemState{tavern.ItemReady, tavern.ItemClaimed, tavern.ItemWaiting, tavern.ItemDone, tavern.ItemDead}})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		said := fmt.Sprintf("%q %s %d %s %v %s %q", i.Body, i.State, i.Attempts, i.Worker, i.Until.UnixMilli(), i.Outcome, i.Error)
		for _, a := range need(q.Get(t.Context(), i.ID)).History {
			if len(a.Result) > 64<<10 {
				a.Result = []byte("null") // only the log has it
			}
			said += fmt.Sprintf("; %d %s %s %q %s", a.Number, a.Worker, a.Outcome, a.Error, a.Result)
		}
		all[i.ID] = said
	}
	return all
}

// worked is a program that works on a queue at random.
type worked struct {
	t      *testing.T
	st     *tally.Store
	q      *tavern.Queue
	random *rand.Rand
	held   []*tavern.Claim
	items  int
}

func (w *worked) step() {
	ctx := w.t.Context()
	take := func() *tavern.Claim {
		if len(w.held) == 0 {
			return nil
		}
		n := w.random.IntN(len(w.held))
		c := w.held[n]
		w.held = append(w.held[:n], w.held[n+1:]...)
		return c
	}
	var err error
	switch n := w.random.IntN(14); {
	case n < 3:
		w.items++
		bodies := [][]byte{[]byte(`{"n":1}`), []byte("text\n"), {0xff, 0}, nil}
		_, err = w.q.Enqueue(ctx, tavern.Item{ID: fmt.Sprint("i/", w.items), Body: bodies[w.items%len(bodies)], Priority: w.random.IntN(2)})
	case n < 8:
		var c *tavern.Claim
		if c, err = w.q.TryClaim(ctx, fmt.Sprint("w", w.random.IntN(3))); err == nil {
			w.held = append(w.held, c)
		}
	case n < 9:
		if c := take(); c != nil {
			err = c.Finish(ctx, [][]byte{nil, []byte(`{"exit": 0}`), []byte("text"), {0xff}, []byte(`"` + strings.Repeat("x", 100_000) + `"`)}[w.random.IntN(5)])
		}
	case n < 11:
		if c := take(); c != nil {
			err = c.Fail(ctx, fmt.Sprint("exit ", n, strings.Repeat("é", 300)), w.random.IntN(4) > 0)
		}
	case n < 12:
		if c := take(); c != nil {
			err = c.Release(ctx)
		}
	case n < 13:
		if len(w.held) > 0 {
			_, err = w.held[0].Renew(ctx)
		}
	default:
		var dead []tavern.ItemStatus
		if dead, _, err = w.q.List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDead}}); err == nil && len(dead) > 0 {
			err = w.q.Requeue(ctx, dead[0].ID)
		}
	}
	_, empty := errors.AsType[*tavern.EmptyError](err)
	_, fenced := errors.AsType[*tally.FencedError](err)
	if err != nil && !empty && !fenced {
		w.t.Fatal(err)
	}
}

// claim lets a worker claim an item, and end in one of four ways.
func (w *worked) claim(way int) {
	ctx := w.t.Context()
	c, err := w.q.TryClaim(ctx, "w")
	if _, empty := errors.AsType[*tavern.EmptyError](err); empty {
		return
	}
	switch {
	case err != nil:
	case way%4 == 0:
		err = c.Finish(ctx, nil)
	case way%4 == 1:
		err = c.Fail(ctx, "exit 1", true)
	case way%4 == 2:
		_, err = c.Renew(ctx)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// The histories of a queue's items travel with the folder into any other store, at once and later. An older state of
// the folder changes nothing.
func TestB42(t *testing.T) {
	for seed := range layouttest.Seeds(6) {
		t.Run(fmt.Sprint("B-42 the states of items travel with the folder ", seed), func(t *testing.T) {
			ctx, random := t.Context(), rand.New(rand.NewPCG(seed, 42))
			st, clone := openStore(t), openStore(t)
			w := &worked{t: t, st: st, q: tavern.QueueOf(st, "a/b"), random: random}
			if err := w.q.Create(ctx, tavern.QueueSettings{Serial: seed%3 == 2, MaxAttempts: 2, Lease: time.Hour}); err != nil {
				t.Fatal(err)
			}
			var before map[string]string
			for range 4 {
				for range 25 {
					w.step()
				}
				files, _ := layouttest.Exported(t, st, taverndir.Layout{})
				dir := folder(t, ".tavern", files)
				dry := imported(t, clone, dir, layouts.ImportOptions{DryRun: true})
				if r := imported(t, clone, dir, layouts.ImportOptions{}); len(r.Problems)+len(r.Notes) > 0 || r.Events != dry.Events {
					t.Fatalf("%+v, dry %+v", r, dry)
				}
				if diff := cmp.Diff(states(t, st, "a/b"), states(t, clone, "a/b")); diff != "" {
					t.Fatal(diff)
				}
				wantFiles(t, clone, files)
				for _, old := range []map[string]string{files, older(before, files)} {
					if r := imported(t, clone, folder(t, ".tavern", old), layouts.ImportOptions{}); r.Events != 0 || len(r.Problems)+len(r.Notes) > 0 {
						t.Fatalf("the report of a second import is %+v", r)
					}
				}
				before = files
			}
		})
	}
	t.Run("B-42 work that is done there and begun here is done", func(t *testing.T) {
		ctx, st, clone := t.Context(), openStore(t), openStore(t)
		q, other := tavern.QueueOf(st, "q"), tavern.QueueOf(clone, "q")
		need(q.EnqueueMany(ctx, tavern.Item{ID: "one", Body: []byte("1")}, tavern.Item{ID: "two", Body: []byte("2")}))
		bring := func() layouts.Report {
			files, _ := layouttest.Exported(t, st, taverndir.Layout{})
			return imported(t, clone, folder(t, ".tavern", files), layouts.ImportOptions{})
		}
		bring()
		here, there := need(other.TryClaim(ctx, "here")), need(q.TryClaim(ctx, "there"))
		if err := there.Finish(ctx, []byte(`"done there"`)); err != nil {
			t.Fatal(err)
		}
		if err := need(q.TryClaim(ctx, "there")).Fail(ctx, "no", false); err != nil {
			t.Fatal(err)
		}
		if err := need(other.TryClaim(ctx, "here")).Finish(ctx, []byte(`"done here"`)); err != nil {
			t.Fatal(err)
		}
		if r := bring(); len(r.Problems) > 0 {
			t.Errorf("got the problems %+v", r.Problems)
		}
		_, fenced := errors.AsType[*tally.FencedError](here.Finish(ctx, []byte(`"late"`)))
		one, two := need(other.Get(ctx, "one")), need(other.Get(ctx, "two"))
		if !fenced || one.State != tavern.ItemDone || string(one.History[1].Result) != `"done there"` {
			t.Errorf("fenced %v, the item is %+v", fenced, one)
		}
		if two.State != tavern.ItemDone || string(two.History[0].Result) != `"done here"` {
			t.Errorf("got %+v", two)
		}
		had := states(t, clone, "q")
		bring()
		if diff := cmp.Diff(had, states(t, clone, "q")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("B-42 what went two ways is named, and stays as it is", func(t *testing.T) {
		ctx, st, clone := t.Context(), openStore(t), openStore(t)
		need(tavern.QueueOf(st, "q").Enqueue(ctx, tavern.Item{ID: "one", Body: []byte("1")}))
		bring := func() layouts.Report {
			files, _ := layouttest.Exported(t, st, taverndir.Layout{})
			return imported(t, clone, folder(t, ".tavern", files), layouts.ImportOptions{})
		}
		bring()
		for n, q := range []*tavern.Queue{tavern.QueueOf(st, "q"), tavern.QueueOf(clone, "q")} {
			if err := need(q.TryClaim(ctx, fmt.Sprint("w", n))).Fail(ctx, "no", true); err != nil {
				t.Fatal(err)
			}
		}
		had := states(t, clone, "q")
		if r := bring(); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Reason, "item one") || r.Events != 0 {
			t.Errorf("the report is %+v", r)
		}
		if diff := cmp.Diff(had, states(t, clone, "q")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("B-42 an item's file that no store could have written is kept as it is", func(t *testing.T) {
		for _, said := range []string{`"state":"done"`, `"state":"done","attempts":1,"history":[{"attempt":1,"worker":"w"}]`, `"state":"ready","attempts":1000000,"history":[{"attempt":1000000,"worker":"w","returned":"failed"}]`,
			`"history":[{"returned":"requeued"}]`, `"state":"done","history":[{"outcome":"completed"}]`} {
			files := map[string]string{"queues/q/items/000000000001-one.json": `{"id":"one","meta":{"id":"one"},"turn":1,` + said + "}\n"}
			st := openStore(t)
			if r := imported(t, st, folder(t, ".tavern", files), layouts.ImportOptions{}); len(r.Notes) != 1 {
				t.Errorf("%s: got %+v", said, r)
			}
			wantFiles(t, st, files)
		}
	})
	t.Run("B-42 what a receiver has seen travels too, and never goes back", func(t *testing.T) {
		ctx, st, clone := t.Context(), openStore(t), openStore(t)
		in := tavern.InboxOf(st, tavern.User)
		var before map[string]string
		for n := range 3 {
			m := need(in.Send(ctx, tavern.Message{From: tavern.User, Type: "note", Thread: "t", Body: tavern.Text(fmt.Sprint(n))}))
			if err := in.Seen(ctx, m.Offset); err != nil {
				t.Fatal(err)
			}
			files, _ := layouttest.Exported(t, st, taverndir.Layout{})
			for _, files := range []map[string]string{files, older(before, files)} {
				imported(t, clone, folder(t, ".tavern", files), layouts.ImportOptions{})
			}
			before = files
			list, _, err := tavern.InboxOf(clone, tavern.User).List(ctx, tavern.Page{})
			if err != nil || len(list) != n+1 || need(tavern.InboxOf(clone, tavern.User).Cursor(ctx)) < list[n].Offset {
				t.Errorf("after %d: got %d messages, error %v", n, len(list), err)
			}
		}
	})
}
