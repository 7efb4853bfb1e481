package flow

import "fmt"

// Kinds of decisions on a flow.
const (
	DueNothing = ""        // until Decision.Until, if that is not 0
	DueEnter   = "enter"   // enter a state as recovery: Decision.To
	DueFail    = "fail"    // fail the flow
	DueEnd     = "end"     // complete the flow: it is in an end, and its worker was lost
	DueRelease = "release" // continue without the lost worker
)

// Outcomes of flows, besides "stopped:" and a reason.
const (
	OutcomeCompleted = "completed"
	OutcomeFailed    = "failed"
)

// A Decision is the work that is due in a flow now.
type Decision struct {
	Do    string // DueNothing and so on
	To    string // of DueEnter
	Why   string
	Until int64 // of DueNothing: when to look again, in Unix milliseconds; 0: after the next record
}

// A Child is the flow that a state started.
type Child struct {
	ID      string
	Over    bool
	Outcome string // if Over
}

// Due returns the decision that is due in a flow at a time, in Unix milliseconds of the log. t is nil if the template
// cannot be read. child is nil if the state started no flow.
func Due(i *Instance, t *Template, child *Child, now int64) Decision {
	if i.Over() || i.Step == 0 {
		return Decision{}
	}
	if i.Held {
		if i.Run.LeaseUntil > now {
			return Decision{Until: i.Run.LeaseUntil}
		}
		return lost(i, t, child, fmt.Sprintf("worker %q was lost", i.Run.Worker))
	}
	if child != nil && child.Over && child.Outcome != OutcomeCompleted {
		return Recover(i, t, fmt.Sprintf("flow %q ended %s", child.ID, child.Outcome))
	}
	return Decision{}
}

// lost decides on a flow whose worker was lost. A flow that a state started has its own workers and continues.
func lost(i *Instance, t *Template, child *Child, why string) Decision {
	switch {
	case i.Damaged > i.Visit().At: // the flow may be in another state
		return Decision{Do: DueFail, Why: fmt.Sprintf("%s, and the flow's record %v cannot be read", why, i.Damaged)}
	case child != nil && (!child.Over || child.Outcome == OutcomeCompleted):
		return Decision{Do: DueRelease, Why: why}
	case t != nil && t.State(i.Run.State) != nil && t.State(i.Run.State).End:
		return Decision{Do: DueEnd, Why: why}
	}
	return Recover(i, t, why)
}

// Recover decides by the rule of the state in which a step was lost.
func Recover(i *Instance, t *Template, why string) Decision {
	var s *State
	if t != nil {
		s = t.State(i.Run.State)
	}
	switch {
	case s == nil:
		return Decision{Do: DueFail, Why: why + ", and the rule of the state cannot be read"}
	case s.Recovery == RuleState:
		return Decision{Do: DueEnter, To: s.RecoverTo, Why: why}
	case s.Recovery == RuleRestart && i.Attempt < s.Attempts:
		return Decision{Do: DueEnter, To: s.Name, Why: why}
	case s.Recovery == RuleRestart:
		return Decision{Do: DueFail, Why: fmt.Sprintf("%s, in attempt %d of %d", why, i.Attempt, s.Attempts)}
	}
	return Decision{Do: DueFail, Why: why}
}
