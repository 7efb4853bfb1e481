package perstack_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/perstack"
)

func parityCheckpoints(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-05 a checkpoint is found by job and id; a missing one is the original's error", func(t *testing.T) {
		c := checkpoint("p05", "r", "c1", 1, messages(0, 3))
		must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
		if diff := cmp.Diff(c, need(perstack.DefaultRetrieveCheckpoint(ctx, st, "p05", "c1"))); diff != "" {
			t.Error(diff)
		}
		_, err := perstack.DefaultRetrieveCheckpoint(ctx, st, "p05", "c2")
		if err == nil || err.Error() != "checkpoint not found: c2" || !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("a missing one is %v", err)
		}
		if _, err := perstack.DefaultRetrieveCheckpoint(ctx, st, "p05-none", "c1"); err == nil || err.Error() != "checkpoint not found: c1" {
			t.Errorf("one of a missing job is %v", err)
		}
		had := records(t, st)
		must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
		must(t, perstack.JobOf(st, "p05").Session().Store().Log.AtRest(ctx, func() error { return nil }))
		if _, err := perstack.JobOf(st, "p05").SaveCheckpoint(ctx, c); err != nil || records(t, st) != had {
			t.Errorf("%v: a save of the same checkpoint, also by a new handle, added %d events", err, records(t, st)-had)
		}
		for _, status := range []perstack.CheckpointStatus{perstack.CheckpointCompleted, perstack.CheckpointProceeding} { // and back to the first status
			c.Status = status
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
			if have := need(perstack.DefaultRetrieveCheckpoint(ctx, st, "p05", "c1")).Status; have != status {
				t.Errorf("the status of the newest version is %s, want %s", have, status)
			}
		}
		if err := perstack.DefaultStoreCheckpoint(ctx, st, perstack.Checkpoint{ID: "x", JobID: "p05"}); err == nil {
			t.Error("a checkpoint without a run was stored")
		}
	})
	t.Run("P-06 checkpoints come by their steps, the invalid one is left out", func(t *testing.T) {
		if list := need(perstack.GetCheckpointsByJobID(ctx, st, "p06")); len(list) != 0 {
			t.Errorf("the checkpoints are %v", list)
		}
		for i, step := range []int64{3, 1, 2, 1} {
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, checkpoint("p06", fmt.Sprint("r", i%2), fmt.Sprint("c", i), step, messages(i, i+int(step)))))
		}
		_, err := perstack.JobOf(st, "p06").Session().Append(ctx, logAny, &events.CheckpointSaved{ID: "bad", Kind: events.CheckpointStep, Step: 2, Raw: events.Raw(`{"id":"bad"}`)})
		must(t, err)
		var ids []string
		for _, c := range need(perstack.GetCheckpointsByJobID(ctx, st, "p06")) {
			ids = append(ids, c.ID)
		}
		if !slices.Equal(ids, []string{"c1", "c3", "c2", "c0"}) {
			t.Errorf("the ids are %v", ids)
		}
		if list := need(perstack.JobOf(st, "p06").CheckpointList(ctx)); len(list) != 5 || list[0].ID != "c1" || list[0].RunID != "r1" {
			t.Errorf("the list is %+v", list)
		}
	})
	t.Run("P-07 everything that a checkpoint has comes back, to the byte", func(t *testing.T) {
		const usage = `{"inputTokens":10,"outputTokens":5,"reasoningTokens":2,"totalTokens":15,"cachedInputTokens":4}`
		const who = `{"key":"e@1","name":"e","version":"1"}`
		raw := `{"stepNumber":4,"id":"c","jobId":"p07","runId":"r","status":"stoppedByDelegate","messages":[` + string(message(1)) + "," + string(message(2)) + `],"expert":` + who +
			`,"delegateTo":[{"expert":` + who + `,"toolCallId":"t1","toolName":"n1","query":"<q>"},{"expert":` + who + `,"toolCallId":"t2","toolName":"n2","query":""}]` +
			`,"delegatedBy":{"expert":` + who + `,"toolCallId":"t0","toolName":"n0","checkpointId":"c0","runId":"r0"},"usage":` + usage + `,"contextWindow":200000,"contextWindowUsage":0.10` +
			`,"pendingToolCalls":[{"id":"t1","skillName":"s","toolName":"n1","args":{"a":1.0}}],"partialToolResults":[{"id":"t3","skillName":"s","toolName":"n","result":[{"id":"p","type":"textPart","text":"x"}]}]` +
			`,"metadata":{"runtime":"docker","open":{"z":1e-7}},"error":{"name":"E","message":"m","statusCode":500,"isRetryable":true},"retryCount":2,"later":[null]}`
		h := perstack.JobOf(st, "p07")
		need(h.SaveCheckpointRaw(ctx, events.Raw(raw)))
		if have := string(need(h.CheckpointBytes(ctx, "c"))); have != raw {
			t.Errorf("the checkpoint is\n%s, want\n%s", have, raw)
		}
		c := need(h.Checkpoint(ctx, "c"))
		if len(c.DelegateTo) != 2 || c.DelegateTo[0].Query != "<q>" || c.DelegatedBy.RunID != "r0" || c.Error.StatusCode != 500 || c.RetryCount != 2 || len(c.PendingToolCalls) != 1 ||
			len(c.PartialToolResults) != 1 || c.ContextWindowUsage != 0.1 || string(c.Metadata) != `{"runtime":"docker","open":{"z":1e-7}}` || c.Usage.CachedInputTokens != 4 || len(c.Unknown) != 1 {
			t.Errorf("the checkpoint is %+v", c)
		}
		c.ID = "again"
		need(h.SaveCheckpoint(ctx, c))
		if diff := cmp.Diff(c, need(h.Checkpoint(ctx, "again"))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("P-18 a job goes on from any checkpoint, and the old line stays", func(t *testing.T) {
		h := perstack.JobOf(st, "p18")
		j := perstack.CreateInitialJob("p18", "coder")
		j.Status, j.FinishedAt = perstack.JobStoppedByMaxSteps, 5
		must(t, perstack.StoreJob(ctx, st, j))
		for step := int64(1); step <= 3; step++ {
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, checkpoint("p18", "r", fmt.Sprint("c", step), step, messages(0, int(step)))))
		}
		latest := need(h.Resume(ctx, ""))
		if latest.StepNumber != 4 || latest.RunID != "r" || latest.ID == "c3" || len(latest.Messages) != 3 {
			t.Errorf("Resume without an id returned %+v", latest)
		}
		if have := need(h.Load(ctx)); have.Status != perstack.JobRunning || have.FinishedAt != 0 {
			t.Errorf("the job is %+v", have)
		}
		one, two := need(h.Resume(ctx, "c1")), need(perstack.JobOf(st, "p18").Resume(ctx, "c1"))
		if one.ID == two.ID || one.StepNumber != 2 || two.StepNumber != 2 {
			t.Errorf("the checkpoints of the two branches are %+v and %+v", one, two)
		}
		if _, err := h.Resume(ctx, "none"); err == nil || err.Error() != "checkpoint not found: none" {
			t.Errorf("resume a missing checkpoint: %v", err)
		}
		list := need(h.CheckpointList(ctx))
		parents := 0
		for _, c := range list {
			if c.Parent == "c1" {
				parents++
			}
		}
		if len(list) != 6 || parents != 2 || len(need(h.Checkpoint(ctx, "c3")).Messages) != 3 {
			t.Errorf("the checkpoints are %+v", list)
		}
	})
	t.Run("P-37 two branches each cost what they took, and a repeated event nothing", func(t *testing.T) {
		h := perstack.JobOf(st, "p37")
		need(h.SaveCheckpoint(ctx, checkpoint("p37", "r", "c1", 1, messages(0, 2))))
		for i := range 2 {
			c := need(h.Resume(ctx, "c1"))
			for range 2 {
				need(h.Record(ctx, ending("p37", "r", fmt.Sprint("e", i), c.StepNumber, 10)))
			}
		}
		if got := need(h.Totals(ctx)); got.Usage.InputTokens != 20 || got.Said != 2 || got.Steps != 2 {
			t.Errorf("the totals are %+v", got)
		}
		if costs := need(h.Session().Costs(ctx)); costs.Spent.Total.Tokens.Input != 18 || costs.Spent.Total.Tokens.CacheRead != 2 || costs.Spent.Total.Events != 2 {
			t.Errorf("the costs are %+v", costs.Spent.Total)
		}
	})
	t.Run("P-05 checkpoints outlive a rewind of the session, and so do their lists", func(t *testing.T) {
		h := perstack.JobOf(st, "p05-moved")
		need(h.SaveCheckpoint(ctx, checkpoint("p05-moved", "r", "c1", 1, messages(0, 2))))
		at := need(st.Loader().Outline(ctx, h.Session().Subject(), 0)).Offset()
		need(h.SaveCheckpoint(ctx, checkpoint("p05-moved", "r", "c2", 2, messages(0, 5))))
		s := st.Session("job/p05-moved")
		_, err := s.Move(ctx, need(s.PlanRewind(ctx, at.String(), "")))
		must(t, err)
		need(h.SaveCheckpoint(ctx, checkpoint("p05-moved", "r", "c3", 2, append(messages(0, 2), message(9), message(4)))))
		need(h.SaveCheckpoint(ctx, checkpoint("p05-moved", "r", "c4", 3, append(messages(0, 2), message(9), message(4), message(7)))))
		for id, want := range map[string]int{"c1": 2, "c2": 5, "c3": 4, "c4": 5} {
			if have := need(h.Checkpoint(ctx, id)).Messages; len(have) != want {
				t.Errorf("%s has %d messages, want %d", id, len(have), want)
			}
		}
		if diff := cmp.Diff(messages(0, 5), need(h.Checkpoint(ctx, "c2")).Messages); diff != "" {
			t.Error(diff)
		}
		if o := need(st.Loader().Outline(ctx, s.Subject(), 0)); len(o.Ledger().Rejected) > 0 {
			t.Errorf("the records %+v are rejected", o.Ledger().Rejected)
		}
	})
}
