package perstack

import (
	"time"

	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// RunKind is the kind of a job's runs, which distinguishes them from other runs in the log.
const RunKind = shape.RunKind

// JobOfSession returns the id of a session's job.
func JobOfSession(session string) (id string, ok bool) { return shape.JobID(session) }

// InSession returns the status as in lists of sessions, such as stopped:max-steps.
func (s JobStatus) InSession() string { return shape.SessionStatus(string(s)) }

// JobStatusOf returns the status of a job for the status of its session, or "".
func JobStatusOf(session string) JobStatus { return JobStatus(shape.JobStatus(session)) }

// Job returns the status of a job that was never stored, from its checkpoint with the largest step. Folders that the
// original's runtime writes have no job.json.
func (s CheckpointStatus) Job() JobStatus { return JobStatus(shape.Reached(string(s))) }

// JobStatuses and CheckpointStatuses list all statuses.
var (
	JobStatuses        = []JobStatus{JobRunning, JobCompleted, JobStoppedByMaxSteps, JobStoppedByInteractiveTool, JobStoppedByError}
	CheckpointStatuses = []CheckpointStatus{CheckpointInit, CheckpointProceeding, CheckpointCompleted, CheckpointStoppedByInteractiveTool,
		CheckpointStoppedByDelegate, CheckpointStoppedByExceededMaxSteps, CheckpointStoppedByError}
)

// Time returns the time for milliseconds since 1970, as in jobs and events. Before 1970 and from the year 10000 on it
// returns zero.
func Time(ms int64) time.Time { return shape.At(ms) }
