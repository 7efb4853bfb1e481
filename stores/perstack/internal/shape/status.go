package shape

// SessionStatus is what a job's status is as a session's, "" for none.
func SessionStatus(job string) string { return statusOf[job] }

// JobStatus is what a session's status is as a job's, "" if a job has none like it.
func JobStatus(session string) string {
	for job, status := range statusOf {
		if status == session {
			return job
		}
	}
	return ""
}

// reached says where a job is whose checkpoint of the largest step has a status: the other
// statuses are of runs that go on, by themselves or in those that they delegated to.
var reached = map[string]string{
	"completed":                 "completed",
	"stoppedByInteractiveTool":  "stoppedByInteractiveTool",
	"stoppedByExceededMaxSteps": "stoppedByMaxSteps",
	"stoppedByError":            "stoppedByError",
}

// Reached is the status of a job that was never stored, by that of its checkpoint of the
// largest step.
func Reached(checkpoint string) string {
	if status := reached[checkpoint]; status != "" {
		return status
	}
	return "running"
}
