package flow

import "slices"

// Rules of recovery: what becomes of a flow when a step of it is lost.
const (
	RuleRestart = "restart" // the state is entered again, a number of times; then the flow fails
	RuleFail    = "fail"    // the flow fails
	RuleState   = "state"   // the flow goes on in another state
)

// DefaultAttempts is how often a state with the rule RuleRestart is tried altogether, if the
// template does not say.
const DefaultAttempts = 3

// A Template is a state machine: it passed the checks of Parse.
type Template struct {
	Title       string
	Description string
	Initial     string
	States      []State // in the order of the document

	index map[string]int // of States, by name
}

// A State is a step of a flow, or an end of it.
type State struct {
	Name        string
	Title       string
	Description string
	End         bool     // the flow may be ended here, and leads nowhere else
	To          []string // states that it leads to
	Flow        string   // template of the flow that runs in this step and is over before the state is left; "": none
	Recovery    string   // RuleRestart, RuleFail or RuleState; "" of an end
	RecoverTo   string   // with RuleState
	Attempts    int      // with RuleRestart: how often the step is tried altogether
}

// State returns a state by its name, nil if there is none.
func (t *Template) State(name string) *State {
	if i, ok := t.index[name]; ok {
		return &t.States[i]
	}
	return nil
}

// Leads reports whether a state leads to another.
func (s *State) Leads(to string) bool { return slices.Contains(s.To, to) }

// Reachable returns the states that moves lead to from one, itself only if they lead back.
func (t *Template) Reachable(from string) map[string]bool {
	reached := make(map[string]bool)
	for next := []string{from}; len(next) > 0; {
		s := t.State(next[len(next)-1])
		if next = next[:len(next)-1]; s == nil {
			continue
		}
		for _, to := range s.To {
			if !reached[to] {
				reached[to] = true
				next = append(next, to)
			}
		}
	}
	return reached
}
