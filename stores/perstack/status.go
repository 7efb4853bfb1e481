package perstack

import (
	"time"

	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// RunKind is the kind of the runs of a job, by which the log tells them from other runs.
const RunKind = shape.RunKind

// JobOfSession is the id of the job that a session is, by the session's id.
func JobOfSession(session string) (id string, ok bool) { return shape.JobID(session) }

// InSession is the status as lists of sessions have it, such as stopped:max-steps.
func (s JobStatus) InSession() string { return shape.SessionStatus(string(s)) }

// JobStatusOf is the status of a job of which the session has another spelling, "" if no
// job has it.
func JobStatusOf(session string) JobStatus { return JobStatus(shape.JobStatus(session)) }

// Job is where a job is that was never stored, by its checkpoint of the largest step: the
// folders that the original's runtime itself writes have no job.json.
func (s CheckpointStatus) Job() JobStatus { return JobStatus(shape.Reached(string(s))) }

// JobStatuses are the statuses of jobs, CheckpointStatuses those of checkpoints.
var (
	JobStatuses        = []JobStatus{JobRunning, JobCompleted, JobStoppedByMaxSteps, JobStoppedByInteractiveTool, JobStoppedByError}
	CheckpointStatuses = []CheckpointStatus{CheckpointInit, CheckpointProceeding, CheckpointCompleted, CheckpointStoppedByInteractiveTool,
		CheckpointStoppedByDelegate, CheckpointStoppedByExceededMaxSteps, CheckpointStoppedByError}
)

// Time is the time that so many milliseconds since 1970 are, as jobs and events have it;
// zero if it has no spelling, before 1970 and from the year 10000 on.
func Time(ms int64) time.Time { return shape.At(ms) }
