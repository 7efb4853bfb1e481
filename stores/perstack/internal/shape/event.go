package shape

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// event checks the members that all events have. Further members depend on the type. Unknown types are accepted, as in
// the original.
var event = object(must("id", id), must("expertKey", text), must("timestamp", count), must("jobId", id), must("runId", id), must("stepNumber", count), must("type", id))

// Event has the members of an event that the log stores beside its raw value.
type Event struct {
	ID        string
	Job       string
	Run       string
	Expert    string // key
	Type      string
	Timestamp int64 // Unix milliseconds
	Step      int64
	Raw       events.Raw
}

// ParseEvent checks the members that all events have, as ParseJob does.
func ParseEvent(raw events.Raw) (Event, error) {
	m, err := parse("event", raw, event)
	if err != nil {
		return Event{}, err
	}
	return Event{ID: m.Text("id"), Job: m.Text("jobId"), Run: m.Text("runId"), Expert: m.Text("expertKey"), Type: m.Text("type"),
		Timestamp: wholeOf(m, "timestamp"), Step: wholeOf(m, "stepNumber"), Raw: raw}, nil
}

// StartRun is the type that starts a run.
const StartRun = "startRun"

// outcomes maps the types that end a run to its outcome.
var outcomes = map[string]string{
	"completeRun":               "completed",
	"stopRunByInteractiveTool":  "stopped:interactive-tool",
	"stopRunByDelegate":         "stopped:delegate",
	"stopRunByExceededMaxSteps": "stopped:max-steps",
	"stopRunByError":            "failed",
}

// Outcome returns the outcome of a run that a type of event ends, or "".
func Outcome(typ string) string { return outcomes[typ] }

// Payload returns the event's record: run.started, run.finished, or run.progressed with its type. raw is its value
// without the lists.
func (e Event) Payload(raw events.Raw, lists events.Lists) events.Payload {
	run := RunRef(e.Run)
	switch outcome := outcomes[e.Type]; {
	case e.Type == StartRun:
		return &events.RunStarted{Run: run, Raw: raw, Lists: lists}
	case outcome != "":
		return &events.RunFinished{Run: run, Outcome: outcome, Result: raw, FinishedAt: stamp(e.Timestamp), Lists: lists}
	}
	return &events.RunProgressed{Run: run, Kind: e.Type, Step: e.Step, Raw: raw, Lists: lists}
}

// RawOf returns the event in a record and its lists, or nil if the record is not an event's.
func RawOf(p events.Payload) (run events.RunRef, raw events.Raw, lists events.Lists) {
	switch p := p.(type) {
	case *events.RunStarted:
		run, raw = p.Run, p.Raw
	case *events.RunProgressed:
		run, raw = p.Run, p.Raw
	case *events.RunFinished:
		run, raw = p.Run, p.Result
	}
	if run.Kind != RunKind {
		return run, nil, nil
	}
	return run, raw, events.ListsOf(p)
}

// EventID returns the id of the event's record. The same event is the same record.
func (e Event) EventID() string {
	return events.DerivedID("event", e.Job, e.Run, e.ID, sum(e.Raw))
}

// At returns the event's time, at most LastTime.
func (e Event) At() time.Time { return spelled(e.Timestamp) }

func sum(raw events.Raw) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}

// stream has the types of events that begin, continue and complete a streamed text.
type stream struct{ start, more, complete string }

var streams = []stream{
	{"startStreamingReasoning", "streamReasoning", "completeStreamingReasoning"},
	{"startStreamingRunResult", "streamRunResult", "completeStreamingRunResult"},
}

// A Part is an event's role in a streamed text.
type Part int

// Parts of a streamed text. NoPart is any other event.
const (
	NoPart Part = iota
	StartPart
	DeltaPart
	CompletePart
)

// PartOf returns the streamed text and the part of a type. A text has the name of the type with its pieces.
func PartOf(typ string) (text string, p Part) {
	for _, s := range streams {
		switch typ {
		case s.start:
			return s.more, StartPart
		case s.more:
			return s.more, DeltaPart
		case s.complete:
			return s.more, CompletePart
		}
	}
	return "", NoPart
}

// TextOf returns a text member of an event, such as its delta, or "".
func TextOf(raw events.Raw, name string) string {
	m, err := rawjson.Object(raw)
	if err != nil {
		return ""
	}
	return m.Text(name)
}

// WithDelta returns the event with another piece of text.
func WithDelta(raw events.Raw, delta string) (events.Raw, error) {
	return rawjson.SetMember(raw, "delta", rawjson.AppendString(nil, delta))
}
