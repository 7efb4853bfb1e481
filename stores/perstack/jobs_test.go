package perstack_test

import (
	"bytes"
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
	"github.com/tallylog/tally/stores/perstack"
)

func parityJobs(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-01 an initial job is the original's to the byte", func(t *testing.T) {
		before := time.Now().UnixMilli()
		j := perstack.CreateInitialJob("j", "coder", 7)
		if j.StartedAt < before || j.StartedAt > time.Now().UnixMilli() {
			t.Errorf("the job started at %d", j.StartedAt)
		}
		j.StartedAt = 1700000000000
		const zero = `{"inputTokens":0,"outputTokens":0,"reasoningTokens":0,"totalTokens":0,"cachedInputTokens":0}`
		if raw, want := need(j.Raw()), `{"id":"j","status":"running","coordinatorExpertKey":"coder","totalSteps":0,"maxSteps":7,"usage":`+zero+`,"startedAt":1700000000000}`; string(raw) != want {
			t.Errorf("the job is\n%s, want\n%s", raw, want)
		}
		if raw := need(perstack.CreateInitialJob("j", "coder").Raw()); bytes.Contains(raw, []byte("maxSteps")) {
			t.Errorf("the job without a maximum is %s", raw)
		}
	})
	t.Run("P-03 no job, none listed", func(t *testing.T) {
		if list := need(perstack.GetAllJobs(ctx, st)); len(list) != 0 {
			t.Errorf("the jobs are %v", list)
		}
	})
	t.Run("P-03 those that started last, as they say now", func(t *testing.T) {
		own := need(st.In("p03"))
		var jobs []perstack.Job
		for i := range 9 {
			j := perstack.CreateInitialJob(fmt.Sprint("j", i), "coder")
			j.StartedAt = int64(1000 + i/2) // two at a time
			must(t, perstack.StoreJob(ctx, own, j))
			jobs = append(jobs, j)
		}
		need(own.Session("job/only-runs").Append(ctx, logAny, &events.CheckpointSaved{ID: "c", Kind: events.CheckpointStep, Step: 4, Raw: events.Raw(`{"id":"c"}`)}))
		jobs[1].StartedAt, jobs[4].Status = 5000, perstack.JobCompleted // the first to start
		jobs[3].StartedAt = 253402300800001                             // after the last time that the log can express
		for _, i := range []int{1, 3, 4} {
			must(t, perstack.StoreJob(ctx, own, jobs[i]))
		}
		names := func(q perstack.Query) (list string) {
			for _, j := range need(perstack.Jobs(ctx, own, q)) {
				list += j.ID + " "
			}
			return list
		}
		for q, want := range map[perstack.Query]string{{}: "j3 j1 j8 j6 j7 j4 j5 j2 j0 ", {Limit: 1}: "j3 ", {Limit: 4}: "j3 j1 j8 j6 ", {Limit: 99}: "j3 j1 j8 j6 j7 j4 j5 j2 j0 ",
			{Status: perstack.JobCompleted, Limit: 1}: "j4 ", {Status: perstack.JobRunning, Limit: 6}: "j3 j1 j8 j6 j7 j5 ", {Status: perstack.JobStoppedByError, Limit: 2}: ""} {
			if have := names(q); have != want {
				t.Errorf("%+v lists %s, want %s", q, have, want)
			}
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
			t.Errorf("retrieve a missing job: %v", err)
		}
		bad := j
		bad.Status = "paused"
		if err := perstack.StoreJob(ctx, st, bad); !isInvalid(err, "job.status") {
			t.Errorf("store an invalid job: %v", err)
		}
		_, err := st.Session("job/p02-bad").Create(ctx, events.SessionCreated{Kind: events.KindJob, CreatedAt: "2026-01-01T00:00:00Z", Raw: events.Raw(`{"id":"p02-bad"}`)})
		must(t, err)
		if _, err := perstack.RetrieveJob(ctx, st, "p02-bad"); !isInvalid(err, "job.status") {
			t.Errorf("retrieve an invalid job: %v", err)
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
			t.Errorf("a save of the same job added %d events", n-had)
		}
		j.TotalSteps = 3
		must(t, perstack.StoreJob(ctx, st, j))
		if have, want := string(need(h.JobBytes(ctx))), strings.Replace(raw, `"totalSteps":0`, `"totalSteps":3`, 1); have != want {
			t.Errorf("the job is\n%s, want\n%s", have, want)
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
			t.Errorf("the ids are %v", ids)
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
				t.Errorf("the status %s is read as %s", status, have)
			}
			if list := need(perstack.Jobs(ctx, st, perstack.Query{Status: status})); !slices.ContainsFunc(list, func(have perstack.Job) bool { return have.ID == j.ID }) {
				t.Errorf("the list by the status %s lacks its job", status)
			}
		}
		for i, status := range []perstack.CheckpointStatus{perstack.CheckpointInit, perstack.CheckpointProceeding, perstack.CheckpointCompleted, perstack.CheckpointStoppedByInteractiveTool,
			perstack.CheckpointStoppedByDelegate, perstack.CheckpointStoppedByExceededMaxSteps, perstack.CheckpointStoppedByError} {
			c := checkpoint("p26", "r", fmt.Sprint("c", i), 1, messages(0, 1))
			c.Status = status
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
			if have := need(perstack.DefaultRetrieveCheckpoint(ctx, st, "p26", c.ID)).Status; have != status {
				t.Errorf("the status %s is read as %s", status, have)
			}
		}
	})
}

func isInvalid(err error, field string) bool {
	invalid, ok := errors.AsType[*events.InvalidError](err)
	return ok && invalid.Field == field
}

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
				t.Error("the call created the path that it returned")
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
				t.Errorf("project %s has the jobs %+v and the checkpoint %+v", project, list, c)
			}
		}
	})
	t.Run("P-25 P-28 the 18 functions are there, and what is large is read again by somebody else", func(t *testing.T) {
		for _, id := range []string{"a/b", "..", "ü \n"} {
			j := perstack.CreateInitialJob(id, "coder")
			must(t, perstack.StoreJob(ctx, st, j))
			if have := need(perstack.RetrieveJob(ctx, st, id)); have.ID != id {
				t.Errorf("the job %q has the id %q", id, have.ID)
			}
		}
		for _, id := range []string{"", strings.Repeat("x", 600)} {
			if err := perstack.StoreJob(ctx, st, perstack.CreateInitialJob(id, "coder")); err == nil {
				t.Errorf("a job with the id %.9q was stored", id)
			}
		}
	})
}
