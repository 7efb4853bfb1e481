package flow

import "slices"

// Rules of recovery: how a flow continues when a step is lost.
const (
	RuleRestart = "restart" // the state is entered again, a limited number of times; then the flow fails
	RuleFail    = "fail"    // the flow fails
	RuleState   = "state"   // the flow continues in another state
)

// DefaultAttempts is the total number of attempts at a state with the rule RuleRestart, if the template has no number.
const DefaultAttempts = 3

// A Template is a state machine that passed the checks of Parse.
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
	End         bool     // the flow may end here, and leads nowhere else
	To          []string // states that may follow
	Flow        string   // template of the flow that runs in this step and must end before the state is left, or ""
	Recovery    string   // RuleRestart, RuleFail or RuleState; "" for an end
	RecoverTo   string   // with RuleState
	Attempts    int      // with RuleRestart: attempts in total
}

// State returns a state by its name, or nil.
func (t *Template) State(name string) *State {
	if i, ok := t.index[name]; ok {
		return &t.States[i]
	}
	return nil
}

// Leads reports whether a state may follow this one.
func (s *State) Leads(to string) bool { return slices.Contains(s.To, to) }

// Reachable returns the states that moves reach from a state. The state itself is in it only if moves lead back.
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
