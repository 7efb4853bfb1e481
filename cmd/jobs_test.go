package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/perstack"
)

// A list of jobs from the catalog equals that of GetAllJobs: in its order, also of jobs that started in the same
// millisecond, and in its columns.
func TestJobsAreAllJobs(t *testing.T) {
	dir := t.TempDir() + "/store"
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local", Source: "urn:test"})
	if err != nil {
		t.Fatal(err)
	}
	const began = 1_754_000_000_000
	for i := range 12 {
		j := perstack.CreateInitialJob(fmt.Sprintf("j%d", i*7%12), "planner", 9)
		j.StartedAt = began + int64(i%3)
		if j.Status = perstack.JobStatuses[i%5]; j.Status != perstack.JobRunning {
			j.TotalSteps, j.FinishedAt, j.Usage.TotalTokens = int64(i), began+1000+int64(i), int64(100*i)
		}
		if err := perstack.StoreJob(t.Context(), st, j); err != nil {
			t.Fatal(err)
		}
	}
	all, err := perstack.GetAllJobs(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, status := range append([]perstack.JobStatus{""}, perstack.JobStatuses...) {
		var want []string
		for _, j := range all {
			if status == "" || j.Status == status {
				want = append(want, fmt.Sprint(j.ID, j.Status, j.TotalSteps, j.Usage.TotalTokens, j.FinishedAt != 0))
			}
		}
		args := []string{"jobs", "--store", dir, "-o", "jsonl"}
		if status != "" {
			args = append(args, "--status", string(status))
		}
		if got := jobsListed(t, args); len(want) < 2 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: got %v, want %v", status, got, want)
		}
	}
}

// jobsListed is a job in a list.
func jobsListed(t *testing.T, args []string) (list []string) {
	t.Helper()
	var out, errs bytes.Buffer
	if err := cmdutil.Run(t.Context(), program.Tally, args, strings.NewReader(""), &out, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		var j struct {
			Job, Status, FinishedAt string
			Steps, TotalTokens      int64
		}
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint(j.Job, j.Status, j.Steps, j.TotalTokens, j.FinishedAt != ""))
	}
	return list
}
