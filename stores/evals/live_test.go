package evals_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/evals"
)

func testAppend(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	for i := range 5 {
		if ack, err := c.Append(t.Context(), stepOf(i, fmt.Sprint(i))); err != nil || ack.Stale {
			t.Fatalf("got %+v, error %v", ack, err)
		}
		if i == 2 { // another writer
			need(evals.Of(st, "c1").Append(t.Context(), stepOf(9, "other"), stepOf(9, "other")))
		}
	}
	d := mustContent(t, evals.Of(st, "c1"))
	if got := texts(d); got != "0,1,2,other,other,3,4" {
		t.Errorf("the steps are %s", got)
	}
	for i, s := range d.Steps {
		if string(s.Field("conversationId")) != `"c1"` {
			t.Errorf("step %d: %s", i, s.Raw())
		}
	}
}

func testAppendLate(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	need(c.Append(t.Context(), stepOf(0, "a")))
	need(c.Append(t.Context(), stepOf(1, "b")))
	other := st.Session("c1")
	back, err := other.PlanRewind(t.Context(), "#1", "")
	if err != nil {
		t.Fatal(err)
	}
	need(other.Move(t.Context(), back))
	ack, err := c.Append(t.Context(), stepOf(2, "answer to b"))
	if err != nil || !ack.Stale {
		t.Fatalf("got %+v, error %v", ack, err)
	}
	if got := texts(mustContent(t, c)); got != "a" {
		t.Errorf("the steps are %s", got)
	}
	if ack, err := c.Append(t.Context(), stepOf(1, "c")); err != nil || ack.Stale { // it has loaded again
		t.Fatalf("got %+v, error %v", ack, err)
	}
	if got := texts(mustContent(t, c)); got != "a,c" {
		t.Errorf("the steps are %s", got)
	}
}

func testFollow(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	mustStore(t, c, saidSteps("a")...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	var last events.Offset
	for u, err := range c.Follow(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s: %s", u.Kind, texts(&evals.Data{Steps: u.Steps})))
		last = u.Offset
		switch len(got) {
		case 1:
			need(c.Append(ctx, stepOf(1, "b"), stepOf(2, "c")))
			r := need(c.CreateRun(ctx, evals.TrajectoryRun, "r"))
			need(r.Save(ctx, []byte(`{}`)))
			need(c.SaveTrajectoryMeta(ctx, trajectoryMeta()))
			back := need(c.Session().PlanRewind(ctx, "#1", ""))
			need(c.Session().Move(ctx, back))
			mustStore(t, c, saidSteps("x")...)
		case 7:
			cancel()
		}
	}
	want := []string{"steps loaded: a", "steps appended: b,c", "run announced: ", "run saved: ", "trajectory changed: ", "steps loaded: a", "steps loaded: x"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	need(c.Append(t.Context(), stepOf(1, "y")))
	for u, err := range c.Follow(t.Context(), last) { // continues from there
		if err != nil || u.Kind != evals.StepsAppended || texts(&evals.Data{Steps: u.Steps}) != "y" {
			t.Errorf("got %+v, error %v", u, err)
		}
		break
	}
	later := evals.Of(st, "later") // does not exist yet
	var appending sync.WaitGroup
	appending.Go(func() { need(later.Append(t.Context(), stepOf(0, "first"))) })
	for u, err := range later.Follow(t.Context(), 0) {
		if err != nil || texts(&evals.Data{Steps: u.Steps}) != "first" {
			t.Errorf("got %+v, error %v", u, err)
		}
		break
	}
	appending.Wait()
}

func testFork(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	mustStore(t, c, saidSteps("a", "b")...)
	if _, _, err := c.Session().Fork(t.Context(), "#1", "fork"); err != nil {
		t.Fatal(err)
	}
	fork := evals.Of(st, "fork")
	need(fork.Append(t.Context(), stepOf(1, "c")))
	if got := texts(mustContent(t, fork)); got != "a,b,c" { // turns of one event stay together
		t.Errorf("the steps of the fork are %s", got)
	}
	if got := texts(mustContent(t, c)); got != "a,b" {
		t.Errorf("the steps of the parent are %s", got)
	}
	if list := need(evals.List(t.Context(), st)); len(list) != 2 {
		t.Errorf("got %d conversations", len(list))
	}
}

// Exactly one of several creators has created the conversation, and the first append has the metadata.
func testAtOnce(t *testing.T, st *tally.Store) {
	const writers = 8
	var created atomic.Int32
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			c, made, err := evals.Create(t.Context(), st, "c1")
			if err != nil {
				t.Error(err)
				return
			}
			if !made.Existed {
				created.Add(1)
				if _, err := c.SetMetadata(t.Context(), []byte(`{"m":1}`)); err != nil {
					t.Error(err)
				}
			}
			for i := range 3 {
				if _, err := c.Append(t.Context(), stepOf(i, fmt.Sprintf("%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	d := mustContent(t, evals.Of(st, "c1"))
	if created.Load() != 1 || len(d.Steps) != 3*writers || string(d.Metadata) != `{"m":1}` {
		t.Errorf("got %d creators, %d steps and the metadata %s", created.Load(), len(d.Steps), d.Metadata)
	}
	for w := range writers { // each writer's steps are in the order of its calls
		if got := texts(d); strings.Index(got, fmt.Sprintf("%d-0", w)) > strings.Index(got, fmt.Sprintf("%d-1", w)) || strings.Index(got, fmt.Sprintf("%d-1", w)) > strings.Index(got, fmt.Sprintf("%d-2", w)) {
			t.Errorf("the order is %s", got)
		}
	}
}
