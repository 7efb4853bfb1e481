package shape

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Source is the CloudEvents source of events that follow from a job's own documents. A live program and an import that
// store the same event give it the same identity, so that the log has it once.
const Source = "urn:tally:perstack"

// RunKind is the kind of the runs of a job.
const RunKind = "expert"

const sessionPrefix = "job/"

// SessionID names the session of a job.
func SessionID(job string) string { return sessionPrefix + job }

// JobID returns the id of a session's job, and false if the session is not a job's.
func JobID(session string) (job string, ok bool) {
	job, ok = strings.CutPrefix(session, sessionPrefix)
	return job, ok && job != ""
}

// RunRef returns the identity of a run inside its job's session.
func RunRef(run string) events.RunRef { return events.RunRef{Kind: RunKind, ID: run} }

// statusOf maps a job's status to that of its session.
var statusOf = map[string]string{
	"running":                  "running",
	"completed":                "completed",
	"stoppedByMaxSteps":        "stopped:max-steps",
	"stoppedByInteractiveTool": "stopped:interactive-tool",
	"stoppedByError":           "error",
}

var job = object(must("id", id), must("status", word("running", "completed", "stoppedByMaxSteps", "stoppedByInteractiveTool", "stoppedByError")),
	must("coordinatorExpertKey", text), must("totalSteps", count), may("maxSteps", count), must("usage", usage), must("startedAt", count), may("finishedAt", count))

// Job has the members of a job that the log stores beside its raw value.
type Job struct {
	ID         string
	Status     string
	Expert     string // the coordinator's key
	StartedAt  int64  // Unix milliseconds, as all times here
	FinishedAt int64  // 0: not set
	Steps      int64
	Usage      events.Raw
	Raw        events.Raw
}

// ParseJob checks a job against the original's schema. If it violates the schema, the error is an *events.InvalidError
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

// Created returns the event that creates a job's session, with the compact job as its raw value.
func (j Job) Created() *events.SessionCreated {
	return &events.SessionCreated{Kind: events.KindJob, CreatedAt: stamp(j.StartedAt), Raw: rawjson.AppendCompact(nil, j.Raw)}
}

// Fields returns the session fields that a later version of the job sets.
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
		{Name: "startedAt", Value: rawjson.AppendString(nil, string(stamp(j.StartedAt)))}, // a later version may change it
		{Name: "finishedAt", Value: finished},
	}
}

// Updated returns the event of a later version of the job.
func (j Job) Updated() *events.SessionUpdated {
	return &events.SessionUpdated{Set: j.Fields(), Raw: rawjson.AppendCompact(nil, j.Raw)}
}

// IsInitial reports whether Created has everything about the job: it is running and has no steps yet.
func (j Job) IsInitial() bool { return j.Status == "running" && j.Steps == 0 && j.FinishedAt == 0 }

// LastTime is the last time of the original's that the log can express.
const LastTime = year10000 - 1

const year10000 = 253402300800000

// spelled returns a time of the original's, at most LastTime. The raw value has the exact number.
func spelled(ms int64) time.Time { return time.UnixMilli(min(ms, LastTime)).UTC() }

// stamp returns a time of the original's as a timestamp of the log.
func stamp(ms int64) events.Timestamp { return events.TimestampOf(spelled(ms)) }

// At returns the time for milliseconds since 1970, or zero if the log cannot express it.
func At(ms int64) time.Time {
	if ms < 0 || ms >= year10000 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
