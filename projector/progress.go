package projector

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Kinds of progress that have no kind of their own in the event.
const (
	ProgressStarted  = "started"
	ProgressFinished = "finished"
)

// Progress is an event of a run: its start, a progress report, or its finish.
type Progress struct {
	Run    events.RunRef
	Offset events.Offset
	Kind   string           // ProgressStarted, ProgressFinished, or the kind of a progress event
	Step   int64            // from a progress event; else 0
	At     events.Timestamp // by its producer's clock
	Bytes  int64            // size of its raw value or result; 0: none
	Name   string           // the text member type of the raw value or result, at most maxName bytes
}

// maxName bounds the name of a progress, in bytes.
const maxName = 200

// ProgressQuery selects events in the runs of a session. A zero field selects all.
type ProgressQuery struct {
	Namespace string // "": the namespace of the store or view that answers
	Session   string
	Run       events.RunRef // with a kind alone: all runs of that kind
	After     events.Offset
	Limit     int
}

// ProgressOf returns the progress that a fact reports. It returns false for facts that are not events of a run.
func ProgressOf(f Fact) (Progress, bool) {
	run := RunOf(f.Payload)
	if run == nil {
		return Progress{}, false
	}
	p := Progress{Run: *run, Offset: f.Offset, At: f.Happened()}
	var raw events.Raw
	switch e := f.Payload.(type) {
	case *events.RunStarted:
		p.Kind, raw = ProgressStarted, e.Raw
	case *events.RunProgressed:
		p.Kind, p.Step, raw = e.Kind, e.Step, e.Raw
	case *events.RunFinished:
		p.Kind, raw = ProgressFinished, e.Result
	default:
		return p, false
	}
	members, _ := rawjson.Object(raw) // a value that is not an object has no name
	p.Bytes, p.Name = int64(len(raw)), Cut(members.Text("type"), maxName)
	return p, true
}
