package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// jobsOf returns a reader of a catalog with the records of jobs.
func jobsOf(t testing.TB, records testkit.Records) Reader {
	t.Helper()
	dir := t.TempDir()
	c := New(dir, openingOf, nullLogger)
	beginAt(t, c, 0)
	must(t, putAll(t, c, records))
	must(t, c.Close())
	r, err := Open(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// jobBegan returns the first record of a job session.
func jobBegan(t testing.TB, id string, at events.Offset, created events.Timestamp) events.Record {
	return record(t, events.Session("", id), at, &events.SessionCreated{Kind: events.KindJob, CreatedAt: created})
}

// Jobs are ordered by their start, ties by id. Pages of any size list each job once, in that order. A fork of a job is
// not listed, even if it has the kind of a job.
func TestJobsByStart(t *testing.T) {
	const noon, later = "2026-01-01T12:00:00.000Z", "2026-01-01T12:00:00.001Z"
	r := jobsOf(t, testkit.Records{
		jobBegan(t, "job/c", 1, noon), jobBegan(t, "job/late", 2, later), jobBegan(t, "job/a", 3, noon), jobBegan(t, "job/b/1", 4, noon),
		jobBegan(t, "fork-1-of-job", 5, later), jobBegan(t, "job/", 6, later), jobBegan(t, "jobs", 7, later),
		record(t, events.Session("", "job/chat"), 8, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: later}),
		record(t, events.Session("other", "job/x"), 9, &events.SessionCreated{Kind: events.KindJob, CreatedAt: later}),
	})
	const want = "job/late job/a job/b/1 job/c"
	for _, limit := range []int{0, 1, 2, 3, 4, 5} {
		var got []string
		for q := (JobQuery{Namespace: "default", Limit: limit}); ; {
			list, next, err := r.Jobs(t.Context(), q)
			must(t, err)
			for _, s := range list {
				got = append(got, s.ID)
			}
			if q.After = next; next == "" {
				break
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("in pages of %d: %v, want %s", limit, got, want)
		}
	}
	for _, after := range []string{"x", "!", "", rowMark{1, "noon"}.token(ByCreated)} {
		_, _, err := r.Jobs(t.Context(), JobQuery{Namespace: "default", After: after})
		if (err == nil) != (after == "") {
			t.Errorf("after %q: %v", after, err)
		}
	}
}

// The status that a job reports, or, without one, that of its checkpoints.
func TestJobsStanding(t *testing.T) {
	said, silent := events.Session("", "job/said"), events.Session("", "job/silent")
	run := events.RunRef{Kind: "expert", ID: "r"}
	step := func(sub events.Subject, at events.Offset, step int64, status string) events.Record {
		return record(t, sub, at, &events.CheckpointSaved{ID: fmt.Sprint("c", at), Kind: events.CheckpointStep, Run: &run, Step: step, Status: status})
	}
	updated := func(at events.Offset, name, value string) events.Record {
		return record(t, said, at, &events.SessionUpdated{Set: events.Fields{{Name: name, Value: events.Raw(value)}}})
	}
	records := testkit.Records{
		jobBegan(t, "job/said", 1, "2026-01-01T12:00:00.000Z"), jobBegan(t, "job/silent", 2, "2026-01-01T11:00:00.000Z"),
		updated(3, "status", `"stopped:max-steps"`), updated(4, "totals", `{"steps":3,"usage":{"totalTokens":120}}`),
		updated(5, "finishedAt", `"2026-01-01T13:00:00.000Z"`), step(said, 6, 2, "proceeding"),
		step(silent, 7, 5, "proceeding"), step(silent, 8, 5, "completed"), step(silent, 9, 4, "proceeding"),
		record(t, silent, 10, &events.RunProgressed{Run: run, Kind: "callTools", Step: 7}),
		record(t, silent, 11, &events.CheckpointSaved{ID: "rewind", Kind: events.CheckpointRewind, Step: 9, Status: "no"}),
	}
	initial := record(t, events.Session("", "job/initial"), 12, &events.SessionCreated{Kind: events.KindJob, CreatedAt: "2026-01-01T10:00:00.000Z", Raw: events.Raw(`{"status":"running"}`)})
	records = append(records, initial, step(initial.Subject, 13, 1, "completed"))
	wants := []string{"job/said stopped:max-steps proceeding 3 120 2026-01-01T13:00:00.000Z", "job/silent  completed 7 0 ", "job/initial  completed 1 0 "}
	r := jobsOf(t, records)
	for _, c := range []struct {
		q    JobQuery
		want []string
	}{
		{JobQuery{}, wants},
		{JobQuery{Status: "stopped:max-steps", Reached: []string{"stoppedByExceededMaxSteps"}}, wants[:1]},
		{JobQuery{Status: "completed", Reached: []string{"completed"}}, wants[1:2]},
		{JobQuery{Status: "running", Stored: true, Reached: []string{"proceeding"}}, wants[2:]},
		{JobQuery{Status: "running", Reached: []string{"init", "proceeding"}}, nil}, // its status is stopped
		{JobQuery{Status: "completed"}, nil},
	} {
		c.q.Namespace = "default"
		list, _, err := r.Jobs(t.Context(), c.q)
		must(t, err)
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprint(s.ID, " ", s.Status, " ", s.Reached, " ", s.Steps, " ", s.Tokens, " ", s.FinishedAt))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%+v: got %q, want %q", c.q, got, c.want)
		}
	}
	cost := &events.CostAccrued{Model: "m", Tokens: &events.Tokens{Input: 1, Output: 20, Reasoning: 7, CacheRead: 300, CacheWrite: 4000}, Run: &run, Purpose: "run", Source: "reported"}
	list, _, err := jobsOf(t, append(records, record(t, said, 14, cost))).Jobs(t.Context(), JobQuery{Namespace: "default"})
	must(t, err)
	if list[0].Tokens != 4321 || list[1].Tokens != 0 {
		t.Errorf("the jobs have %d and %d tokens, want those of their costs", list[0].Tokens, list[1].Tokens)
	}
	again := append(records, updated(14, "finishedAt", `null`), updated(15, "totals", `"many"`), updated(16, "status", `"running"`)) // it continues
	s, _, err := jobsOf(t, again).Session(t.Context(), "default", "job/said")
	must(t, err)
	if s.FinishedAt != "" || s.TotalTokens != 0 || s.Steps != 3 || s.Status != "running" {
		t.Errorf("the job that continues is %+v", s)
	}
}

// BenchmarkJobs lists 10,000 jobs, and a page of 100 of them.
func BenchmarkJobs(b *testing.B) {
	var records testkit.Records
	for i := range 10_000 {
		records = append(records, jobBegan(b, fmt.Sprint("job/", i), events.Offset(i+1), events.Timestamp(fmt.Sprintf("2026-01-01T%02d:%02d:%02d.000Z", i*7%24, i*11%60, i*13%60))))
	}
	r := jobsOf(b, records)
	for _, limit := range []int{0, 100} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := r.Jobs(b.Context(), JobQuery{Namespace: "default", Limit: limit}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
