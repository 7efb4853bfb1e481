package perstack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// What the original does, on every backend.
func TestParity(t *testing.T) {
	withKey(t)
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for _, part := range []func(*testing.T, *tally.Store){parityJobs, parityPaths, parityCheckpoints, parityEvents, paritySettings, parityTotals, parityRuns, parityQueries, parityLarge, parityLive, parityProjects} {
			part(t, st)
		}
	})
}

func parityJobs(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-01 an initial job is the original's to the byte", func(t *testing.T) {
		before := time.Now().UnixMilli()
		j := perstack.CreateInitialJob("j", "coder", 7)
		if j.StartedAt < before || j.StartedAt > time.Now().UnixMilli() {
			t.Errorf("it started at %d", j.StartedAt)
		}
		j.StartedAt = 1700000000000
		const zero = `{"inputTokens":0,"outputTokens":0,"reasoningTokens":0,"totalTokens":0,"cachedInputTokens":0}`
		if raw, want := need(j.Raw()), `{"id":"j","status":"running","coordinatorExpertKey":"coder","totalSteps":0,"maxSteps":7,"usage":`+zero+`,"startedAt":1700000000000}`; string(raw) != want {
			t.Errorf("it is\n%s, want\n%s", raw, want)
		}
		if raw := need(perstack.CreateInitialJob("j", "coder").Raw()); bytes.Contains(raw, []byte("maxSteps")) {
			t.Errorf("without a maximum it is %s", raw)
		}
	})
	t.Run("P-03 no job, none listed", func(t *testing.T) {
		if list := need(perstack.GetAllJobs(ctx, st)); len(list) != 0 {
			t.Errorf("there are %v", list)
		}
	})
	t.Run("P-02 a stored job is retrieved; a missing one and an invalid one are errors", func(t *testing.T) {
		j := perstack.CreateInitialJob("p02", "coder")
		j.Unknown = events.Fields{{Name: "more", Value: events.Raw(`{"n":1.50,"<":"\u003c"}`)}}
		must(t, perstack.StoreJob(ctx, st, j))
		if diff := cmp.Diff(j, need(perstack.RetrieveJob(ctx, st, "p02"))); diff != "" {
			t.Error(diff)
		}
		if _, err := perstack.RetrieveJob(ctx, st, "none"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("a missing job is %v", err)
		}
		bad := j
		bad.Status = "paused"
		if err := perstack.StoreJob(ctx, st, bad); !isInvalid(err, "job.status") {
			t.Errorf("an invalid job is stored: %v", err)
		}
		_, err := st.Session("job/p02-bad").Create(ctx, events.SessionCreated{Kind: events.KindJob, CreatedAt: "2026-01-01T00:00:00Z", Raw: events.Raw(`{"id":"p02-bad"}`)})
		must(t, err)
		if _, err := perstack.RetrieveJob(ctx, st, "p02-bad"); !isInvalid(err, "job.status") {
			t.Errorf("an invalid job is retrieved: %v", err)
		}
	})
	t.Run("P-02 what changes is changed in the bytes that are there", func(t *testing.T) {
		h := perstack.JobOf(st, "p02-raw")
		const usage = `{"inputTokens":0,"outputTokens":0,"reasoningTokens":0,"totalTokens":0,"cachedInputTokens":0}`
		raw := `{"usage":` + usage + `,"startedAt":5.0,"maxSteps":1e1,"id":"p02-raw","odd":1e+2,"status":"running","coordinatorExpertKey":"\u00e9","totalSteps":0}`
		need(h.SaveRaw(ctx, events.Raw(raw)))
		j := need(h.Load(ctx))
		had := records(t, st)
		must(t, perstack.StoreJob(ctx, st, j))
		if n := records(t, st); n != had {
			t.Errorf("the same job again is %d events", n-had)
		}
		j.TotalSteps = 3
		must(t, perstack.StoreJob(ctx, st, j))
		if have, want := string(need(h.JobBytes(ctx))), strings.Replace(raw, `"totalSteps":0`, `"totalSteps":3`, 1); have != want {
			t.Errorf("it is\n%s, want\n%s", have, want)
		}
	})
	t.Run("P-03 jobs are listed newest first, the invalid one is left out", func(t *testing.T) {
		for i, id := range []string{"p03-b", "p03-a", "p03-c"} {
			j := perstack.CreateInitialJob(id, "coder")
			j.StartedAt = time.Now().UnixMilli() + 1_000_000 + int64(i/2)
			must(t, perstack.StoreJob(ctx, st, j))
		}
		var ids []string
		for _, j := range need(perstack.GetAllJobs(ctx, st)) {
			ids = append(ids, j.ID)
		}
		if len(ids) < 4 || !slices.Equal(ids[:3], []string{"p03-c", "p03-a", "p03-b"}) || slices.Contains(ids, "p02-bad") {
			t.Errorf("they are %v", ids)
		}
	})
	t.Run("P-16 a job that ended runs again", func(t *testing.T) {
		h := perstack.JobOf(st, "p16")
		j := perstack.CreateInitialJob("p16", "coder")
		must(t, perstack.StoreJob(ctx, st, j))
		for _, s := range []struct{ status, session string }{{"completed", "completed"}, {"running", "running"}, {"stoppedByMaxSteps", "stopped:max-steps"}, {"running", "running"}, {"stoppedByError", "error"}} {
			j.Status, j.FinishedAt = perstack.JobStatus(s.status), 0
			if s.status != "running" {
				j.FinishedAt = 1700000000000
			}
			must(t, perstack.StoreJob(ctx, st, j))
			l := need(st.Loader().Outline(ctx, h.Session().Subject(), 0)).Ledger()
			if l.Text("status") != s.session || (l.Text("finishedAt") != "") != (s.status != "running") || need(h.Load(ctx)).Status != j.Status {
				t.Errorf("%s: the session is %s, finished %q", s.status, l.Text("status"), l.Text("finishedAt"))
			}
		}
	})
	t.Run("P-26 all statuses come back", func(t *testing.T) {
		for _, status := range []perstack.JobStatus{perstack.JobRunning, perstack.JobCompleted, perstack.JobStoppedByMaxSteps, perstack.JobStoppedByInteractiveTool, perstack.JobStoppedByError} {
			j := perstack.CreateInitialJob("p26-"+string(status), "coder")
			j.Status = status
			must(t, perstack.StoreJob(ctx, st, j))
			if have := need(perstack.RetrieveJob(ctx, st, j.ID)).Status; have != status {
				t.Errorf("%s is %s", status, have)
			}
			if list := need(perstack.Jobs(ctx, st, perstack.Query{Status: status})); !slices.ContainsFunc(list, func(have perstack.Job) bool { return have.ID == j.ID }) {
				t.Errorf("%s is not listed by its status", status)
			}
		}
		for i, status := range []perstack.CheckpointStatus{perstack.CheckpointInit, perstack.CheckpointProceeding, perstack.CheckpointCompleted, perstack.CheckpointStoppedByInteractiveTool,
			perstack.CheckpointStoppedByDelegate, perstack.CheckpointStoppedByExceededMaxSteps, perstack.CheckpointStoppedByError} {
			c := checkpoint("p26", "r", fmt.Sprint("c", i), 1, messages(0, 1))
			c.Status = status
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
			if have := need(perstack.DefaultRetrieveCheckpoint(ctx, st, "p26", c.ID)).Status; have != status {
				t.Errorf("%s is %s", status, have)
			}
		}
	})
}

func isInvalid(err error, field string) bool {
	invalid, ok := errors.AsType[*events.InvalidError](err)
	return ok && invalid.Field == field
}

// What waits for a live tree in the original's layout is not here: of P-27 that each path
// exists after the call that stores what it names, and P-39, that another program reads that
// folder as the original would.
func parityPaths(t *testing.T, _ *tally.Store) {
	t.Run("P-04 paths are below the working directory of the call", func(t *testing.T) {
		for range 2 {
			dir := need(filepath.EvalSymlinks(t.TempDir()))
			t.Chdir(dir)
			root := filepath.Join(dir, "perstack", "jobs")
			for _, c := range []struct{ have, want string }{
				{perstack.GetJobsDir(), root},
				{perstack.GetJobDir("j"), root + "/j"},
				{perstack.GetCheckpointDir("j"), root + "/j/checkpoints"},
				{perstack.GetCheckpointPath("j", "c"), root + "/j/checkpoints/c.json"},
				{perstack.DefaultGetRunDir("j", "r"), root + "/j/runs/r"},
			} {
				if c.have != filepath.FromSlash(c.want) {
					t.Errorf("the path is %s, want %s", c.have, c.want)
				}
			}
			if _, err := os.Stat(root); err == nil {
				t.Error("asking for a path makes it")
			}
		}
	})
	t.Run("P-27 no id leads out of its folder, and no two share one", func(t *testing.T) {
		root := perstack.GetJobsDir()
		seen := map[string]string{}
		for _, id := range []string{"..", ".", "", "a/b", "../../x", "con", "dot.", strings.Repeat("x", 512), "a=2Fb", "tab\t"} {
			dir := perstack.GetJobDir(id)
			if filepath.Dir(dir) != root || seen[dir] != "" || len(filepath.Base(dir)) > 255 {
				t.Errorf("the folder of %.20q is %s, as that of %q", id, dir, seen[dir])
			}
			seen[dir] = id + " "
		}
	})
}

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
			t.Errorf("%v: the same again, also by somebody who has not seen it, is %d events", err, records(t, st)-had)
		}
		for _, status := range []perstack.CheckpointStatus{perstack.CheckpointCompleted, perstack.CheckpointProceeding} { // and back to what it was
			c.Status = status
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
			if have := need(perstack.DefaultRetrieveCheckpoint(ctx, st, "p05", "c1")).Status; have != status {
				t.Errorf("the newest version is %s, want %s", have, status)
			}
		}
		if err := perstack.DefaultStoreCheckpoint(ctx, st, perstack.Checkpoint{ID: "x", JobID: "p05"}); err == nil {
			t.Error("a checkpoint without a run is stored")
		}
	})
	t.Run("P-06 checkpoints come by their steps, the invalid one is left out", func(t *testing.T) {
		if list := need(perstack.GetCheckpointsByJobID(ctx, st, "p06")); len(list) != 0 {
			t.Errorf("there are %v", list)
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
			t.Errorf("they are %v", ids)
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
			t.Errorf("it is\n%s, want\n%s", have, raw)
		}
		c := need(h.Checkpoint(ctx, "c"))
		if len(c.DelegateTo) != 2 || c.DelegateTo[0].Query != "<q>" || c.DelegatedBy.RunID != "r0" || c.Error.StatusCode != 500 || c.RetryCount != 2 || len(c.PendingToolCalls) != 1 ||
			len(c.PartialToolResults) != 1 || c.ContextWindowUsage != 0.1 || string(c.Metadata) != `{"runtime":"docker","open":{"z":1e-7}}` || c.Usage.CachedInputTokens != 4 || len(c.Unknown) != 1 {
			t.Errorf("it is %+v", c)
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
			t.Errorf("after the latest comes %+v", latest)
		}
		if have := need(h.Load(ctx)); have.Status != perstack.JobRunning || have.FinishedAt != 0 {
			t.Errorf("the job is %+v", have)
		}
		one, two := need(h.Resume(ctx, "c1")), need(perstack.JobOf(st, "p18").Resume(ctx, "c1"))
		if one.ID == two.ID || one.StepNumber != 2 || two.StepNumber != 2 {
			t.Errorf("two branches are %+v and %+v", one, two)
		}
		if _, err := h.Resume(ctx, "none"); err == nil || err.Error() != "checkpoint not found: none" {
			t.Errorf("resume of nothing: %v", err)
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
		if o := need(st.Loader().Outline(ctx, s.Subject(), 0)); len(o.Ledger().Void) > 0 {
			t.Errorf("%+v are void", o.Ledger().Void)
		}
	})
}

func parityEvents(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	text := events.Field{Name: "text", Value: events.Raw(`"<ok>"`)}
	t.Run("P-08 an event is stored, and the run is there with it", func(t *testing.T) {
		e := event("p08", "r", "e1", "completeRun", 5, 2, text)
		must(t, perstack.DefaultStoreEvent(ctx, st, e))
		list := need(perstack.GetEventContents(ctx, st, "p08", "r"))
		if diff := cmp.Diff([]perstack.Event{e}, list); diff != "" {
			t.Error(diff)
		}
		metas := need(perstack.GetEventsByRun(ctx, st, "p08", "r"))
		h := perstack.JobOf(st, "p08")
		if raw := need(h.EventBytes(ctx, metas[0].Offset)); !bytes.Equal(raw, need(e.Raw())) {
			t.Errorf("it is %s", raw)
		}
		if runs := need(h.Runs(ctx)); len(runs) != 1 || runs[0].ID != "r" || runs[0].Outcome != "completed" || runs[0].ExpertKey != "coder@1" {
			t.Errorf("the runs are %+v", runs)
		}
		for _, bad := range []perstack.Event{event("p08", "r", "e", "", 1, 1), event("p08", "r", "e", "t", -1, 1), event("p08", "r", "", "t", 1, 1), event("p08", "r", "e", "t", 1, -1)} {
			if err := perstack.DefaultStoreEvent(ctx, st, bad); err == nil {
				t.Errorf("%+v is stored", bad)
			}
		}
	})
	t.Run("P-09 metas by step, contents by time, up to a step", func(t *testing.T) {
		if list := need(perstack.GetEventsByRun(ctx, st, "p09", "r")); len(list) != 0 {
			t.Errorf("there are %v", list)
		}
		for i, e := range []struct{ at, step int64 }{{30, 1}, {10, 2}, {20, 1}, {5, 3}} {
			must(t, perstack.DefaultStoreEvent(ctx, st, event("p09", "r", fmt.Sprint("e", i), fmt.Sprint("type-", i), e.at, e.step)))
		}
		_, err := perstack.JobOf(st, "p09").Session().Append(ctx, logAny, &events.RunProgressed{Run: events.RunRef{Kind: "expert", ID: "r"}, Kind: "odd", Raw: events.Raw(`{"id":1}`)})
		must(t, err) // as an import keeps what is corrupt
		var metas, contents, early []string
		for _, m := range need(perstack.GetEventsByRun(ctx, st, "p09", "r")) {
			metas = append(metas, fmt.Sprint(m.Type, " ", m.Timestamp, " ", m.StepNumber))
		}
		for _, e := range need(perstack.GetEventContents(ctx, st, "p09", "r")) {
			contents = append(contents, e.ID)
		}
		for _, e := range need(perstack.GetEventContents(ctx, st, "p09", "r", 2)) {
			early = append(early, e.ID)
		}
		if diff := cmp.Diff([][]string{{"type-0 30 1", "type-2 20 1", "type-1 10 2", "type-3 5 3"}, {"e3", "e1", "e2", "e0"}, {"e1", "e2", "e0"}}, [][]string{metas, contents, early}); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("P-10 two events of one time, step and type are both kept, one that is repeated once", func(t *testing.T) {
		for _, id := range []string{"a", "b", "a"} {
			must(t, perstack.DefaultStoreEvent(ctx, st, event("p10", "r", id, "callTools", 5, 1)))
		}
		must(t, perstack.StoreJob(ctx, st, perstack.CreateInitialJob("p10", "coder"))) // which comes later
		if _, err := perstack.JobOf(st, "p10").Record(ctx, event("p10", "r", "b", "callTools", 5, 1)); err != nil {
			t.Error(err)
		}
		if list := need(perstack.GetEventContents(ctx, st, "p10", "r")); len(list) != 2 || list[0].ID != "a" || list[1].ID != "b" {
			t.Errorf("there are %v", list)
		}
	})
	t.Run("P-09 an event has its lists back, whoever reads it", func(t *testing.T) {
		h := perstack.JobOf(st, "p09-lists")
		whole := rawjson.AppendArray(nil, messages(0, 4))
		e := event("p09-lists", "r", "e", "startGeneration", 1, 1, events.Field{Name: "messages", Value: whole})
		need(h.SaveCheckpoint(ctx, checkpoint("p09-lists", "r", "c", 1, messages(0, 4))))
		need(h.Record(ctx, e))
		need(perstack.JobOf(st, "p09-lists").Record(ctx, e)) // who knows nothing of what the first one did
		if list := need(perstack.GetEventContents(ctx, st, "p09-lists", "r")); len(list) != 1 || !bytes.Equal(list[0].Payload[0].Value, whole) {
			t.Errorf("it is %v", list)
		}
		metas := need(h.EventList(ctx, "r"))
		rec := need(st.Log.Record(ctx, metas[0].Offset))
		if len(rec.Data) > len(whole)/2 {
			t.Errorf("the record has %d bytes, the messages %d", len(rec.Data), len(whole))
		}
		if rec = need(st.Loader().Whole(ctx, rec)); !bytes.Contains(rec.Data, whole) {
			t.Error("the core does not put it together")
		}
	})
}

func paritySettings(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-11 the first setting counts, a later one moves its time", func(t *testing.T) {
		const canary = "sk-ant-canary-0123456789"
		first := setting("p11", "r", canary, 1000)
		must(t, perstack.StoreRunSetting(ctx, st, first, nil, nil))
		h := perstack.JobOf(st, "p11")
		if diff := cmp.Diff(first, need(h.Setting(ctx, "r"))); diff != "" {
			t.Error(diff)
		}
		later := setting("p11", "r", "other", 2000)
		later.Model = "other"
		must(t, perstack.StoreRunSetting(ctx, st, later, nil, nil))
		have := need(h.Setting(ctx, "r"))
		if have.UpdatedAt < 1700000000000 || have.StartedAt != 1000 {
			t.Errorf("it was updated at %d", have.UpdatedAt)
		}
		have.UpdatedAt = 1000
		first.ReasoningBudget, first.MaxSteps, first.MaxRetries, first.Timeout = events.Raw(`"low"`), 100, 5, 300000 // which the original fills in when it writes it again
		if diff := cmp.Diff(first, have); diff != "" {
			t.Error(diff)
		}
		for rec, err := range st.Log.Read(ctx, events.Range{}) {
			must(t, err)
			if bytes.Contains(rec.Data, []byte("canary-0123")) {
				t.Errorf("the record %v has a secret", rec.Offset)
			}
		}
		if runs := need(h.Runs(ctx)); runs[0].Model != "claude-sonnet-4-5" || !runs[0].HasSetting {
			t.Errorf("the run is %+v", runs[0])
		}
	})
	t.Run("P-11 a setting with secrets and without a key is refused, and nothing is written", func(t *testing.T) {
		t.Setenv("TALLY_SECRET_KEY_FILE", "")
		had := records(t, st)
		if err := perstack.StoreRunSetting(ctx, st, setting("p11-none", "r", "sk-ant-canary-0123456789", 1), nil, nil); !errors.Is(err, perstack.ErrNoKey) {
			t.Errorf("it is %v", err)
		}
		s := setting("p11-none", "r", "sk", 1)
		s.ProviderConfig = events.Raw(`{"providerName":"ollama"}`)
		s.ExpertKey = "sk-ant-REDACTED"
		var suspect *perstack.SuspectError
		if err := perstack.StoreRunSetting(ctx, st, s, nil, nil); !errors.As(err, &suspect) || strings.Contains(err.Error(), "canary") {
			t.Errorf("what looks like a key is %v", err)
		}
		if n := records(t, st); n != had {
			t.Errorf("%d events were written", n-had)
		}
		s.ExpertKey = "coder"
		must(t, perstack.StoreRunSetting(ctx, st, s, nil, nil)) // which has none
		if _, err := perstack.JobOf(st, "p11").Setting(ctx, "r"); !errors.Is(err, perstack.ErrNoKey) {
			t.Errorf("what is sealed is read without a key: %v", err)
		}
		if list := need(perstack.GetAllRuns(ctx, st)); len(list) < 2 {
			t.Errorf("without a key %d runs are listed", len(list))
		}
	})
	t.Run("P-12 events may come before the setting", func(t *testing.T) {
		must(t, perstack.DefaultStoreEvent(ctx, st, event("p12", "r", "e", "startRun", 1, 1)))
		must(t, perstack.StoreRunSetting(ctx, st, setting("p12", "r", "k", 7), nil, nil))
		if have := need(perstack.JobOf(st, "p12").Setting(ctx, "r")); have.StartedAt != 7 {
			t.Errorf("it is %+v", have)
		}
	})
	t.Run("P-13 with an adapter the file is written and the event appended", func(t *testing.T) {
		dir := t.TempDir()
		files, dirOf := perstack.CreateDefaultFileSystem(), func(job, run string) string { return filepath.Join(dir, job+"_"+run) }
		s := setting("p13", "r", "sk-key", 100)
		must(t, perstack.StoreRunSetting(ctx, st, s, files, dirOf))
		path := filepath.Join(dir, "p13_r", "run-setting.json")
		if have := need(os.ReadFile(path)); !bytes.Equal(have, need(s.Raw())) {
			t.Errorf("the file is %s", have)
		}
		need(perstack.JobOf(st, "p13").Setting(ctx, "r"))
		had := records(t, st)
		s.Model = "ignored"
		must(t, perstack.StoreRunSetting(ctx, st, s, perstack.FileOnly(files), dirOf))
		have := need(perstack.ParseRunSetting(need(os.ReadFile(path))))
		if have.Model == "ignored" || have.UpdatedAt <= 100 || records(t, st) != had {
			t.Errorf("the file alone: %+v, %d events", have, records(t, st)-had)
		}
		t.Chdir(t.TempDir())
		must(t, perstack.StoreRunSetting(ctx, st, setting("p13", "r2", "k", 1), perstack.FileOnly(files), nil))
		if _, err := os.Stat(filepath.Join(perstack.DefaultGetRunDir("p13", "r2"), "run-setting.json")); err != nil {
			t.Error(err)
		}
	})
	t.Run("P-14 runs of all jobs are listed, those that changed last first", func(t *testing.T) {
		const far = 4000000000000 // later than any that was touched
		for i, job := range []string{"p14-a", "p14-b", "p14-a"} {
			s := setting(job, fmt.Sprint("r", i), "k", far+int64(i))
			s.ExpertKey = fmt.Sprint("p14-", i%2)
			must(t, perstack.StoreRunSetting(ctx, st, s, nil, nil))
		}
		var runs []string
		for _, s := range need(perstack.GetAllRuns(ctx, st))[:3] {
			runs = append(runs, s.JobID+" "+s.RunID)
		}
		if !slices.Equal(runs, []string{"p14-a r2", "p14-b r1", "p14-a r0"}) {
			t.Errorf("they are %v", runs)
		}
	})
}

func parityTotals(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-15 totals follow the latest checkpoint, and the events that say what a step used", func(t *testing.T) {
		h := perstack.JobOf(st, "p15")
		for step := int64(1); step < 3; step++ {
			c := checkpoint("p15", "r", fmt.Sprint("c", step), step, messages(0, 1))
			c.Usage = perstack.Usage{InputTokens: 100 * step, TotalTokens: 100 * step}
			need(h.SaveCheckpoint(ctx, c))
		}
		if have := need(h.Totals(ctx)); have.Usage.InputTokens != 200 || have.Steps != 2 || have.Said != 0 {
			t.Errorf("by checkpoints they are %+v", have)
		}
		for _, child := range []string{"a", "b"} { // at once, below the run: each says what it used itself
			need(h.Record(ctx, ending("p15", child, "e", 3, 7)))
			need(perstack.JobOf(st, "p15").Record(ctx, ending("p15", child, "e", 3, 7)))
		}
		want := perstack.Usage{InputTokens: 14, OutputTokens: 4, ReasoningTokens: 2, TotalTokens: 18, CachedInputTokens: 2}
		have := need(h.Totals(ctx))
		if diff := cmp.Diff(perstack.Totals{Steps: 3, Usage: want, Said: 2}, have); diff != "" {
			t.Error(diff)
		}
	})
}

func parityRuns(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-17 delegation is a tree", func(t *testing.T) {
		h := perstack.JobOf(st, "p17")
		need(h.SaveCheckpoint(ctx, checkpoint("p17", "root", "c0", 1, messages(0, 1))))
		by := func(run, of, at, call string) {
			c := checkpoint("p17", run, "c-"+run, 2, messages(0, 1))
			c.DelegatedBy = &perstack.DelegatedBy{Expert: expert, ToolCallID: call, ToolName: "n", CheckpointID: at, RunID: of}
			need(h.SaveCheckpoint(ctx, c))
		}
		by("left", "root", "c0", "t1")
		by("below", "left", "c-left", "t3")
		by("loop", "loop", "c-loop", "t4")
		by("lost", "gone", "c9", "t5")
		start := need(checkpoint("p17", "right", "c-right", 2, nil).Raw())
		start = need(rawjson.SetMember(start, "delegatedBy", events.Raw(`{"runId":"root","checkpointId":"c0","toolCallId":"t2","toolName":"n","expert":{}}`)))
		need(h.Record(ctx, event("p17", "right", "e", "startRun", 1, 2, events.Field{Name: "initialCheckpoint", Value: start})))
		var tree func([]*perstack.Node) string
		tree = func(list []*perstack.Node) string {
			var all []string
			for _, n := range list {
				all = append(all, n.ID+"<"+n.Checkpoint+" "+n.ToolCall+">"+tree(n.Children))
			}
			return "(" + strings.Join(all, ", ") + ")"
		}
		const want = "(root< >(left<c0 t1>(below<c-left t3>()), right<c0 t2>()), loop<c-loop t4>(), lost<c9 t5>())"
		if have := tree(need(h.Tree(ctx))); have != want {
			t.Errorf("it is\n%s, want\n%s", have, want)
		}
	})
}

func parityQueries(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-23 queries, with the original's words for nothing", func(t *testing.T) {
		empty := need(st.In("p23"))
		h := perstack.JobOf(empty, "X")
		_, err := perstack.MostRecentRun(ctx, empty)
		_, err2 := h.MostRecentRun(ctx)
		_, err3 := h.MostRecentCheckpoint(ctx)
		for i, want := range []string{"No runs found", "No runs found for job X", "No checkpoints found for job X"} {
			if have := []error{err, err2, err3}[i]; have == nil || have.Error() != want || !errors.Is(have, tally.ErrNotFound) {
				t.Errorf("it is %v, want %s", have, want)
			}
		}
		for i, key := range []string{"a", "b", "a"} {
			s := setting(fmt.Sprint("j", i), "r", "k", int64(100+i))
			s.ExpertKey = key
			must(t, perstack.StoreRunSetting(ctx, empty, s, nil, nil))
		}
		if run := need(perstack.MostRecentRun(ctx, empty)); run.JobID != "j2" {
			t.Errorf("the most recent run is of %s", run.JobID)
		}
		experts := need(perstack.RecentExperts(ctx, empty, 0))
		if diff := cmp.Diff([]perstack.RecentExpert{{Key: "a", LastUsed: 102}, {Key: "b", LastUsed: 101}}, experts); diff != "" {
			t.Error(diff)
		}
		need(h.SaveCheckpoint(ctx, checkpoint("X", "r", "c1", 2, nil)))
		need(h.SaveCheckpoint(ctx, checkpoint("X", "r", "c2", 2, nil)))
		need(h.SaveCheckpoint(ctx, checkpoint("X", "r", "c3", 1, nil)))
		if c := need(h.MostRecentCheckpoint(ctx)); c.ID != "c2" {
			t.Errorf("the most recent checkpoint is %s", c.ID)
		}
		need(h.Record(ctx, event("X", "r", "e1", "callTools", 9, 1)))
		need(h.Record(ctx, event("X", "s", "e2", "startRun", 3, 1)))
		var rows []string
		for _, r := range need(h.EventRows(ctx, "")) {
			rows = append(rows, r.RunID+" "+r.ID)
		}
		if !slices.Equal(rows, []string{"s 3-1-startRun", "r 9-1-callTools"}) {
			t.Errorf("the rows are %v", rows)
		}
	})
}

func parityLarge(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-24 what is larger than an event can be comes back", func(t *testing.T) {
		big := func(id string) events.Raw {
			return events.Raw(`{"id":"` + id + `","type":"userMessage","contents":[{"id":"p","type":"textPart","text":"` + strings.Repeat("b", events.MaxData) + `"}]}`)
		}
		h := perstack.JobOf(st, "p24")
		c := checkpoint("p24", "r", "c", 1, []events.Raw{big("1"), message(1)})
		need(h.SaveCheckpoint(ctx, c))
		e := event("p24", "r", "e", "callTools", 1, 1, events.Field{Name: "newMessage", Value: big("2")})
		need(h.Record(ctx, e))
		again := perstack.JobOf(st, "p24")
		if have := need(again.Checkpoint(ctx, "c")).Messages; len(have) != 2 || !bytes.Equal(have[0], c.Messages[0]) {
			t.Error("the checkpoint is another")
		}
		if have := need(again.Events(ctx, "r", perstack.AllSteps)); len(have) != 1 || !bytes.Equal(have[0].Payload[0].Value, big("2")) {
			t.Error("the event is another")
		}
	})
}

func parityLive(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	delta := func(job, id, text string) perstack.Event {
		return event(job, "r", id, "streamRunResult", 1, 1, events.Field{Name: "delta", Value: rawjson.AppendString(nil, text)})
	}
	t.Run("P-22 pieces of text are kept, sampled or dropped; what is completed is always kept", func(t *testing.T) {
		for policy, want := range map[perstack.DeltaPolicy]int{perstack.KeepDeltas: 200, perstack.SampleDeltas: 3, perstack.DropDeltas: 0} {
			job := fmt.Sprint("p22-", policy)
			h := perstack.JobWith(st, job, perstack.Options{Deltas: policy})
			need(h.Record(ctx, event(job, "r", "s", "startStreamingRunResult", 1, 1)))
			for i := range 200 {
				need(h.Record(ctx, delta(job, fmt.Sprint("d", i), strings.Repeat("x", 50))))
			}
			need(h.Record(ctx, event(job, "r", "c", "completeStreamingRunResult", 1, 1, events.Field{Name: "text", Value: events.Raw(`"whole"`)})))
			n := 0
			for _, m := range need(h.EventList(ctx, "r")) {
				if m.Type == "streamRunResult" {
					n++
				}
			}
			if policy == perstack.SampleDeltas && (n < want || n > 40) || policy != perstack.SampleDeltas && n != want {
				t.Errorf("policy %d keeps %d pieces", policy, n)
			}
			streams := need(h.Streams(ctx, "r"))
			if len(streams) != 1 || !streams[0].Finished || streams[0].Text != "whole" {
				t.Errorf("policy %d leaves %+v", policy, streams)
			}
		}
	})
	t.Run("P-38 who follows sees events and pieces of text; an unfinished text stays visible", func(t *testing.T) {
		h := perstack.JobWith(st, "p38", perstack.Options{Deltas: perstack.SampleDeltas})
		following, stop := context.WithTimeout(ctx, 20*time.Second)
		defer stop()
		var kinds []string
		done := make(chan string)
		go func() {
			text := ""
			for u, err := range perstack.JobOf(st, "p38").Follow(following, 0) {
				if err != nil {
					t.Error(err)
					break
				}
				kinds = append(kinds, u.Kind.String())
				if text += u.Delta; strings.HasSuffix(text, "three") {
					break
				}
			}
			done <- text
		}()
		must(t, perstack.StoreJob(ctx, st, perstack.CreateInitialJob("p38", "coder")))
		need(h.SaveCheckpoint(ctx, checkpoint("p38", "r", "c", 1, messages(0, 1))))
		need(h.Record(ctx, event("p38", "r", "s", "startStreamingRunResult", 1, 1)))
		for i, piece := range []string{"one ", "two ", "three"} {
			need(h.Record(ctx, delta("p38", fmt.Sprint("d", i), piece)))
		} // and then its producer says nothing any more
		if text := <-done; text != "one two three" {
			t.Errorf("the follower has %q", text)
		}
		if want := []string{"job saved", "checkpoint saved", "event recorded", "event recorded"}; !slices.Equal(kinds, want) {
			t.Errorf("it saw %v, want %v", kinds, want)
		}
		streams := need(perstack.JobOf(st, "p38").Streams(ctx, "r"))
		if len(streams) != 1 || streams[0].Finished || streams[0].Text != "one two three" {
			t.Errorf("the text is %+v", streams)
		}
		must(t, h.Flush(ctx))
	})
}

// P-25: the original's functions, with what it calls them with.
var (
	_ func(string, string, ...int64) perstack.Job                                                                      = perstack.CreateInitialJob
	_ func(context.Context, *tally.Store, perstack.Job) error                                                          = perstack.StoreJob
	_ func(context.Context, *tally.Store, string) (perstack.Job, error)                                                = perstack.RetrieveJob
	_ func(context.Context, *tally.Store) ([]perstack.Job, error)                                                      = perstack.GetAllJobs
	_ func() string                                                                                                    = perstack.GetJobsDir
	_ func(string) string                                                                                              = perstack.GetJobDir
	_ func(string) string                                                                                              = perstack.GetCheckpointDir
	_ func(string, string) string                                                                                      = perstack.GetCheckpointPath
	_ func(string, string) string                                                                                      = perstack.DefaultGetRunDir
	_ func(context.Context, *tally.Store, perstack.Checkpoint) error                                                   = perstack.DefaultStoreCheckpoint
	_ func(context.Context, *tally.Store, string, string) (perstack.Checkpoint, error)                                 = perstack.DefaultRetrieveCheckpoint
	_ func(context.Context, *tally.Store, string) ([]perstack.Checkpoint, error)                                       = perstack.GetCheckpointsByJobID
	_ func(context.Context, *tally.Store, perstack.Event) error                                                        = perstack.DefaultStoreEvent
	_ func(context.Context, *tally.Store, string, string) ([]perstack.EventMeta, error)                                = perstack.GetEventsByRun
	_ func(context.Context, *tally.Store, string, string, ...int64) ([]perstack.Event, error)                          = perstack.GetEventContents
	_ func(context.Context, *tally.Store, perstack.RunSetting, perstack.FileSystem, func(string, string) string) error = perstack.StoreRunSetting
	_ func(context.Context, *tally.Store) ([]perstack.RunSetting, error)                                               = perstack.GetAllRuns
	_ func() perstack.FileSystem                                                                                       = perstack.CreateDefaultFileSystem
)

func parityProjects(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-41 two jobs of one id, of two projects, stay apart", func(t *testing.T) {
		for i, project := range []string{"p41-a", "p41-b"} {
			in := need(st.In(project))
			j := perstack.CreateInitialJob("same", project)
			must(t, perstack.StoreJob(ctx, in, j))
			must(t, perstack.DefaultStoreCheckpoint(ctx, in, checkpoint("same", "r", "c", int64(i), messages(i, i+2))))
			must(t, perstack.DefaultStoreEvent(ctx, in, event("same", "r", "e", project, 1, 1)))
		}
		for i, project := range []string{"p41-a", "p41-b"} {
			in := need(st.In(project))
			list := need(perstack.GetAllJobs(ctx, in))
			c := need(perstack.DefaultRetrieveCheckpoint(ctx, in, "same", "c"))
			if len(list) != 1 || list[0].CoordinatorExpertKey != project || c.StepNumber != int64(i) || need(perstack.GetEventsByRun(ctx, in, "same", "r"))[0].Type != project {
				t.Errorf("%s has %+v and %+v", project, list, c)
			}
		}
	})
	t.Run("P-25 P-28 the 18 functions are there, and what is large is read again by somebody else", func(t *testing.T) {
		for _, id := range []string{"a/b", "..", "ü \n"} {
			j := perstack.CreateInitialJob(id, "coder")
			must(t, perstack.StoreJob(ctx, st, j))
			if have := need(perstack.RetrieveJob(ctx, st, id)); have.ID != id {
				t.Errorf("%q is %q", id, have.ID)
			}
		}
		for _, id := range []string{"", strings.Repeat("x", 600)} {
			if err := perstack.StoreJob(ctx, st, perstack.CreateInitialJob(id, "coder")); err == nil {
				t.Errorf("a job of the id %.9q is stored", id)
			}
		}
	})
}
