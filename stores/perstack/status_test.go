package perstack_test

import (
	"testing"

	"github.com/tallylog/tally/stores/perstack"
)

// Statuses survive the conversion to those of sessions, and each status of a checkpoint has one of a job.
func TestStatuses(t *testing.T) {
	for _, s := range perstack.JobStatuses {
		if got := perstack.JobStatusOf(s.InSession()); s.InSession() == "" || got != s {
			t.Errorf("the status %s is %q in a session, which is read as %q", s, s.InSession(), got)
		}
	}
	if got := perstack.JobStatusOf("archived"); got != "" {
		t.Errorf("the status archived is read as %q", got)
	}
	for s, want := range map[perstack.CheckpointStatus]perstack.JobStatus{
		"": "running", "init": "running", "proceeding": "running", "stoppedByDelegate": "running", "completed": "completed",
		"stoppedByInteractiveTool": "stoppedByInteractiveTool", "stoppedByExceededMaxSteps": "stoppedByMaxSteps", "stoppedByError": "stoppedByError",
	} {
		if got := s.Job(); got != want {
			t.Errorf("for a checkpoint with the status %q the job's status is %q, want %q", s, got, want)
		}
	}
}
