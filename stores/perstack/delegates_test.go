package perstack_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// Delegates work at the same time, with their own handles or a shared one, as the processes of a machine do: nothing is
// lost, and the totals are exact.
func TestDelegates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("P-31 P-15 32 delegates by 8 handles lose nothing", func(t *testing.T) { delegates(t, st) })
	})
}

func delegates(t *testing.T, st *tally.Store) {
	const children, writers = 32, 8
	steps := int64(testkit.Times(3))
	ctx := t.Context()
	must(t, perstack.StoreJob(ctx, st, perstack.CreateInitialJob("j", "coder")))
	need(perstack.JobOf(st, "j").SaveCheckpoint(ctx, checkpoint("j", "root", "c", 1, messages(0, 3))))
	handles := make([]*perstack.Handle, writers)
	for i := range handles {
		handles[i] = perstack.JobOf(st, "j")
	}
	var all sync.WaitGroup
	for child := range children {
		h, run := handles[child%writers], fmt.Sprint("r", child)
		all.Go(func() {
			for step := range steps {
				if err := work(t, h, run, child, step); err != nil {
					t.Errorf("%s: %v", run, err)
					return
				}
			}
		})
	}
	all.Wait()
	wantDelegates(t, st, children, steps)
}

// wantDelegates checks that the work of all delegates is stored, and that the job has its sum.
func wantDelegates(t *testing.T, st *tally.Store, children, steps int64) {
	t.Helper()
	ctx, h := t.Context(), perstack.JobOf(st, "j")
	total := perstack.Usage{InputTokens: 10 * children * steps, OutputTokens: 2 * children * steps, ReasoningTokens: children * steps, TotalTokens: 12 * children * steps, CachedInputTokens: children * steps}
	if diff := cmp.Diff(perstack.Totals{Steps: steps, Usage: total, Said: int(children * steps)}, need(h.Totals(ctx))); diff != "" {
		t.Error(diff)
	}
	if j := need(h.Load(ctx)); j.Usage.InputTokens != total.InputTokens || j.TotalSteps != steps {
		t.Errorf("the job has %d tokens in %d steps, want %d in %d", j.Usage.InputTokens, j.TotalSteps, total.InputTokens, steps)
	}
	for child := range children {
		run := fmt.Sprint("r", child)
		for step := range int64(steps) {
			if diff := cmp.Diff(workOf(run, int(child), step), need(h.Checkpoint(ctx, fmt.Sprint(run, "-", step)))); diff != "" {
				t.Errorf("%s: got %s", run, diff)
			}
		}
		for i, e := range need(h.Events(ctx, run, perstack.AllSteps)) {
			if e.ID != fmt.Sprint("e", i) {
				t.Errorf("event %d of %s is %s", i, run, e.ID)
			}
		}
	}
	if o := need(st.Loader().Outline(ctx, h.Session().Subject(), 0)); len(o.Ledger().Rejected) > 0 {
		t.Errorf("the records %+v are rejected", o.Ledger().Rejected)
	}
}

// work does a step of a delegate.
func work(t *testing.T, h *perstack.Handle, run string, child int, step int64) error {
	ctx := t.Context()
	if _, err := h.SaveCheckpoint(ctx, workOf(run, child, step)); err != nil {
		return err
	}
	if _, err := h.Record(ctx, ending("j", run, fmt.Sprint("e", step), step+1, 10)); err != nil {
		return err
	}
	_, err := h.Update(ctx, func(j *perstack.Job) error {
		j.Usage = j.Usage.Plus(perstack.Usage{InputTokens: 10})
		j.TotalSteps = max(j.TotalSteps, step+1)
		return nil
	})
	return err
}

// workOf returns the checkpoint of a delegate after a step: its parent's messages, and its own.
func workOf(run string, child int, step int64) perstack.Checkpoint {
	return checkpoint("j", run, fmt.Sprint(run, "-", step), step+1, append(messages(0, 3), messages(1000*child, 1000*child+int(step)+1)...))
}
