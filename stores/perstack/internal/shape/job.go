package shape

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Source is the CloudEvents source of what follows from a job's own documents: a live
// program and an import that meet the same event name it alike, so that it is there once.
const Source = "urn:tally:perstack"

// RunKind is the kind of the runs of a job.
const RunKind = "expert"

const sessionPrefix = "job/"

// SessionID names the session of a job.
func SessionID(job string) string { return sessionPrefix + job }

// JobID is the job that a session is, and whether it is one by its id.
func JobID(session string) (job string, ok bool) {
	job, ok = strings.CutPrefix(session, sessionPrefix)
	return job, ok && job != ""
}

// RunRef is the identity of a run inside its job's session.
func RunRef(run string) events.RunRef { return events.RunRef{Kind: RunKind, ID: run} }

// statusOf says what a job's status is as a session's.
var statusOf = map[string]string{
	"running":                  "running",
	"completed":                "completed",
	"stoppedByMaxSteps":        "stopped:max-steps",
	"stoppedByInteractiveTool": "stopped:interactive-tool",
	"stoppedByError":           "error",
}

var job = object(must("id", id), must("status", word("running", "completed", "stoppedByMaxSteps", "stoppedByInteractiveTool", "stoppedByError")),
	must("coordinatorExpertKey", text), must("totalSteps", count), may("maxSteps", count), must("usage", usage), must("startedAt", count), may("finishedAt", count))

// Job is what the log says of a job beside its raw value.
type Job struct {
	ID         string
	Status     string
	Expert     string // the coordinator's key
	StartedAt  int64  // Unix milliseconds, as all times here
	FinishedAt int64  // 0: not said
	Steps      int64
	Usage      events.Raw
	Raw        events.Raw
}

// ParseJob holds a job to the original's schema. What is wrong is an *events.InvalidError
// that names the member.
func ParseJob(raw events.Raw) (Job, error) {
	m, err := parse("job", raw, job)
	if err != nil {
		return Job{}, err
	}
	j := Job{ID: m.Text("id"), Status: m.Text("status"), Expert: m.Text("coordinatorExpertKey"), Raw: raw,
		StartedAt: wholeOf(m, "startedAt"), FinishedAt: wholeOf(m, "finishedAt"), Steps: wholeOf(m, "totalSteps")}
	j.Usage, _ = m.Get("usage")
	return j, nil
}

// Created is the event that makes the session of a job, with the job as it stands, compact.
func (j Job) Created() *events.SessionCreated {
	return &events.SessionCreated{Kind: events.KindJob, CreatedAt: stamp(j.StartedAt), Raw: rawjson.AppendCompact(nil, j.Raw)}
}

// Fields are what a later version of the job sets in its session.
func (j Job) Fields() events.Fields {
	finished := events.Raw("null")
	if j.FinishedAt > 0 {
		finished = rawjson.AppendString(nil, string(stamp(j.FinishedAt)))
	}
	totals := rawjson.AppendCompact([]byte(`{"steps":`+itoa(j.Steps)+`,"usage":`), j.Usage)
	totals = append(totals, '}')
	return events.Fields{
		{Name: "status", Value: rawjson.AppendString(nil, statusOf[j.Status])},
		{Name: "totals", Value: totals},
		{Name: "startedAt", Value: rawjson.AppendString(nil, string(stamp(j.StartedAt)))}, // which it may have said otherwise before
		{Name: "finishedAt", Value: finished},
	}
}

// Updated is the event of a later version of the job.
func (j Job) Updated() *events.SessionUpdated {
	return &events.SessionUpdated{Set: j.Fields(), Raw: rawjson.AppendCompact(nil, j.Raw)}
}

// IsInitial reports whether what Created says of the job is all of it: it runs, and nothing
// was done yet.
func (j Job) IsInitial() bool { return j.Status == "running" && j.Steps == 0 && j.FinishedAt == 0 }

// LastTime is the last time of the original's that has a spelling in the log.
const LastTime = year10000 - 1

const year10000 = 253402300800000

// spelled is a time of the original's, or the last one that has a spelling: what stands in the
// raw value counts.
func spelled(ms int64) time.Time { return time.UnixMilli(min(ms, LastTime)).UTC() }

// stamp is a time of the original's in the log's spelling.
func stamp(ms int64) events.Timestamp { return events.TimestampOf(spelled(ms)) }

// At is the time of so many milliseconds since 1970; zero if it has no spelling.
func At(ms int64) time.Time {
	if ms < 0 || ms >= year10000 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
