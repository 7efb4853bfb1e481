package tavern

import "fmt"

// FlowOverError reports that a flow has ended. Nothing was written.
type FlowOverError struct {
	Flow, Outcome string
}

func (e *FlowOverError) Error() string {
	return fmt.Sprintf("flow %q is over: %s", e.Flow, e.Outcome)
}

// FlowChildError reports that the flow which a state started has not ended, so the state cannot be left. Nothing was
// written.
type FlowChildError struct {
	Flow, State, Child string
}

func (e *FlowChildError) Error() string {
	return fmt.Sprintf("flow %q: %q cannot be left before flow %q ends", e.Flow, e.State, e.Child)
}
