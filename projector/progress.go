package projector

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// What happens in a run and has no kind of its own.
const (
	ProgressStarted  = "started"
	ProgressFinished = "finished"
)

// Progress is something that happened in a run: that it was started, a progress of it, that
// it was finished.
type Progress struct {
	Run    events.RunRef
	Offset events.Offset
	Kind   string           // ProgressStarted, ProgressFinished, or the kind that a progress says
	Step   int64            // that a progress says; 0 otherwise
	At     events.Timestamp // by its producer's clock
	Bytes  int64            // of its raw value or result; 0: it has none
	Name   string           // what that calls itself: its member type, if it is a text; at most MaxName bytes
}

// maxName bounds the name of a progress, in bytes.
const maxName = 200

// ProgressQuery selects what happened in the runs of a session. Fields that are zero select
// all.
type ProgressQuery struct {
	Namespace string // "": the namespace of whoever is asked
	Session   string
	Run       events.RunRef // with a kind alone: all runs of that kind
	After     events.Offset
	Limit     int
}

// ProgressOf returns what a fact says of its run, and whether it is something that happens
// in one.
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
	members, _ := rawjson.Object(raw) // what is not an object has no name
	p.Bytes, p.Name = int64(len(raw)), Cut(members.Text("type"), maxName)
	return p, true
}
