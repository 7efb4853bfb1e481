package shape

// SessionStatus returns a job's status as a session's, or "".
func SessionStatus(job string) string { return statusOf[job] }

// JobStatus returns a session's status as a job's, or "".
func JobStatus(session string) string {
	for job, status := range statusOf {
		if status == session {
			return job
		}
	}
	return ""
}

// reached maps the status of the checkpoint with the largest step to that of its job. Other statuses belong to runs
// that continue, by themselves or by delegation.
var reached = map[string]string{
	"completed":                 "completed",
	"stoppedByInteractiveTool":  "stoppedByInteractiveTool",
	"stoppedByExceededMaxSteps": "stoppedByMaxSteps",
	"stoppedByError":            "stoppedByError",
}

// Reached returns the status of a job that was never stored, from the checkpoint with the largest step.
func Reached(checkpoint string) string {
	if status := reached[checkpoint]; status != "" {
		return status
	}
	return "running"
}
