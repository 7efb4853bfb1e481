package flow

import (
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Kinds of the progress of a flow.
const (
	ProgressMoved     = "moved"     // into a state, also the first
	ProgressRecovered = "recovered" // into a state, as a rule of recovery says
	ProgressLease     = "lease"     // renewed or given back
)

// RunKind is the kind of a flow's run, whose id is the flow's.
const RunKind = "workflow"

// An Instance is a flow as its records tell. The zero value, with the identity of its run,
// has not begun.
type Instance struct {
	Run     projector.Run
	Input   events.Raw // that it was started with
	Result  events.Raw // of its end; nil: it is not over, or nobody said
	Visits  []Visit    // of states, oldest first
	Step    int64      // number of the visit that lasts, from 1; 0: none
	Attempt int        // which try of its state that is, from 1
	Held    bool       // by the worker whose claim is Run.Claim
	Made    string     // id of the event that created it
	Ended   string     // id of the event that ended it; "": it is not over
	EndedAt time.Time  // when that was recorded
	Last    events.Offset
	Damaged events.Offset // the last record that cannot be read; 0: there is none
}

// A Visit is one time in a state.
type Visit struct {
	State    string
	Step     int64
	At       events.Offset // where it began
	Recorded time.Time     // when that was recorded
	ID       string        // of the event by which it did
	Lost     bool          // it ended by recovery
}

// New returns a flow of which no record was read.
func New(id string) *Instance {
	return &Instance{Run: projector.Run{Kind: RunKind, ID: id}}
}

// Over reports whether the flow is over.
func (i *Instance) Over() bool { return i.Ended != "" }

// Outcome is that of a flow that is over, "" of another.
func (i *Instance) Outcome() string {
	if r := i.Run.Last(); r != nil {
		return r.Outcome
	}
	return ""
}

// Visit returns the visit that lasts, the zero Visit if the flow has not begun.
func (i *Instance) Visit() Visit {
	if len(i.Visits) == 0 {
		return Visit{}
	}
	return i.Visits[len(i.Visits)-1]
}

// Miss notes a record that cannot be read.
func (i *Instance) Miss(at events.Offset) { i.Last, i.Damaged = at, at }

// Apply folds the flow's next record. What is not of its run changes nothing, nor what a
// worker says whose claim went on to another.
func (i *Instance) Apply(f projector.Fact) {
	i.Last = f.Offset
	ref := projector.RunOf(f.Payload)
	if f.Invalid != nil || ref == nil || *ref != i.Run.Ref() {
		return
	}
	if i.Run.At == 0 {
		i.Run.At = f.Offset
	}
	refused := len(i.Run.Fenced)
	if i.Run.Apply(f); len(i.Run.Fenced) > refused {
		return
	}
	switch p := f.Payload.(type) {
	case *events.RunCreated:
		if i.Run.Created == f.Offset {
			i.Made, i.Input = f.ID, p.Input
		}
	case *events.RunStarted:
		i.Held = p.Worker != ""
	case *events.RunProgressed:
		i.progressed(f, p)
	case *events.RunFinished:
		if i.Ended == "" {
			i.EndedAt = f.Recorded
		}
		i.Ended, i.Result = f.ID, p.Result
	}
}

func (i *Instance) progressed(f projector.Fact, p *events.RunProgressed) {
	if p.LeaseUntil != nil && *p.LeaseUntil == 0 {
		i.Held = false
	}
	if p.State == nil {
		return
	}
	again, lost := false, p.Kind == ProgressRecovered
	if n := len(i.Visits); n > 0 {
		i.Visits[n-1].Lost = lost
		again = lost && i.Visits[n-1].State == p.State.To
	}
	if i.Attempt++; !again {
		i.Attempt = 1
	}
	i.Step++
	i.Visits = append(i.Visits, Visit{State: p.State.To, Step: i.Step, At: f.Offset, Recorded: f.Recorded, ID: f.ID})
}

// What has become of a step.
const (
	StepDone    = "done"    // the flow was there and went on
	StepCurrent = "current" // the flow is there
	StepOpen    = "open"    // the flow can still get there
	StepLost    = "lost"    // the flow was there, recovery took it away, and no move leads back
	StepSkipped = "skipped" // the flow was never there, and no move leads there any more
)

// A Step is a state, which is no end, as it stands in a flow.
type Step struct {
	State  string
	Status string // StepDone and so on
	Visits int
}

// Steps returns the steps of a template as they stand, in its order. What was done and can be
// reached again is done.
func (i *Instance) Steps(t *Template) []Step {
	visits, done := make(map[string]int), make(map[string]bool)
	for n, v := range i.Visits {
		visits[v.State]++
		done[v.State] = !v.Lost && n < len(i.Visits)-1
	}
	reached := t.Reachable(i.Run.State)
	var steps []Step
	for _, s := range t.States {
		if s.End {
			continue
		}
		step := Step{State: s.Name, Status: StepSkipped, Visits: visits[s.Name]}
		switch {
		case s.Name == i.Run.State:
			step.Status = StepCurrent
		case done[s.Name]:
			step.Status = StepDone
		case reached[s.Name]:
			step.Status = StepOpen
		case step.Visits > 0:
			step.Status = StepLost
		}
		steps = append(steps, step)
	}
	return steps
}
