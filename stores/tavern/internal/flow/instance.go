package flow

import (
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Kinds of a flow's progress.
const (
	ProgressMoved     = "moved"     // into a state, also the first
	ProgressRecovered = "recovered" // into a state, by a rule of recovery
	ProgressLease     = "lease"     // renewed or given back
)

// RunKind is the kind of a flow's run. The run's id is the flow's.
const RunKind = "workflow"

// An Instance is a flow as folded from its records. The zero value, with the identity of its run, has not begun.
type Instance struct {
	Run     projector.Run
	Input   events.Raw // of the start
	Result  events.Raw // of the end; nil: the flow has not ended, or has no result
	Visits  []Visit    // of states, oldest first
	Step    int64      // number of the present visit, from 1; 0: none
	Attempt int        // attempt at its state, from 1
	Held    bool       // the worker with the claim Run.Claim drives the flow
	Made    string     // id of the event that created it
	Ended   string     // id of the event that ended it; "": it has not ended
	EndedAt time.Time  // when the end was recorded
	Last    events.Offset
	Damaged events.Offset // the last record that cannot be read, or 0
}

// A Visit is one stay in a state.
type Visit struct {
	State    string
	Step     int64
	At       events.Offset // the record with which it began
	Recorded time.Time     // when that was recorded
	ID       string        // of that event
	Lost     bool          // it ended by recovery
}

// New returns a flow without records.
func New(id string) *Instance {
	return &Instance{Run: projector.Run{Kind: RunKind, ID: id}}
}

// Over reports whether the flow has ended.
func (i *Instance) Over() bool { return i.Ended != "" }

// Outcome returns the outcome of a flow that has ended, or "".
func (i *Instance) Outcome() string {
	if r := i.Run.Last(); r != nil {
		return r.Outcome
	}
	return ""
}

// Visit returns the present visit, or the zero Visit if the flow has not begun.
func (i *Instance) Visit() Visit {
	if len(i.Visits) == 0 {
		return Visit{}
	}
	return i.Visits[len(i.Visits)-1]
}

// Miss notes a record that cannot be read.
func (i *Instance) Miss(at events.Offset) { i.Last, i.Damaged = at, at }

// Apply folds the flow's next record. It ignores records of other runs, and records of a worker that lost its claim.
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

// Statuses of a step.
const (
	StepDone    = "done"    // the flow was there and went on
	StepCurrent = "current" // the flow is there
	StepOpen    = "open"    // the flow can still get there
	StepLost    = "lost"    // the flow was there, recovery took it away, and no move leads back
	StepSkipped = "skipped" // the flow was never there, and no move leads there any more
)

// A Step is a state of a flow that is not an end.
type Step struct {
	State  string
	Status string // StepDone and so on
	Visits int
}

// Steps returns the steps of a template with their statuses, in its order. A done step stays done, even if moves lead
// back to it.
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
