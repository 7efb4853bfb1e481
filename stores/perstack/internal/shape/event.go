package shape

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// event is what all events have. What else one has is its type's, and types that nobody
// here knows are kept like the others: the original does not look either.
var event = object(must("id", id), must("expertKey", text), must("timestamp", count), must("jobId", id), must("runId", id), must("stepNumber", count), must("type", id))

// Event is what the log says of an event beside its raw value.
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

// ParseEvent holds an event to what the original's schema asks of all, as ParseJob does.
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

// outcomes are the types that end a run, with what they leave it as.
var outcomes = map[string]string{
	"completeRun":               "completed",
	"stopRunByInteractiveTool":  "stopped:interactive-tool",
	"stopRunByDelegate":         "stopped:delegate",
	"stopRunByExceededMaxSteps": "stopped:max-steps",
	"stopRunByError":            "failed",
}

// Outcome is what a type of event leaves its run as, "" if it does not end it.
func Outcome(typ string) string { return outcomes[typ] }

// Payload is the one record that the event becomes, of whose raw value lists were taken
// out: run.started, run.finished, or run.progressed of its type.
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

// RawOf returns the event that a record is of and its lists, nil if it is of none.
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

// EventID is the id of its record: the same event again is the same record.
func (e Event) EventID() string {
	return events.DerivedID("event", e.Job, e.Run, e.ID, sum(e.Raw))
}

// At is when the event happened; LastTime if that is later.
func (e Event) At() time.Time { return spelled(e.Timestamp) }

func sum(raw events.Raw) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}

// stream is the type of event that brings a piece of a text, with what begins and ends it.
type stream struct{ start, more, complete string }

var streams = []stream{
	{"startStreamingReasoning", "streamReasoning", "completeStreamingReasoning"},
	{"startStreamingRunResult", "streamRunResult", "completeStreamingRunResult"},
}

// A Part says what an event is of a streamed text.
type Part int

// The parts. What is none of a streamed text is NoPart.
const (
	NoPart Part = iota
	StartPart
	DeltaPart
	CompletePart
)

// PartOf says which part of which streamed text a type is; the text is named after the
// type that brings its pieces.
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

// TextOf is a text member of an event, such as its delta; "" if it has none.
func TextOf(raw events.Raw, name string) string {
	m, err := rawjson.Object(raw)
	if err != nil {
		return ""
	}
	return m.Text(name)
}

// WithDelta is the event with another piece of text.
func WithDelta(raw events.Raw, delta string) (events.Raw, error) {
	return rawjson.SetMember(raw, "delta", rawjson.AppendString(nil, delta))
}
