package tavern

import (
	"fmt"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// FlowOverError says that a flow has ended. Nothing was written.
type FlowOverError struct {
	Flow, Outcome string
}

func (e *FlowOverError) Error() string {
	return fmt.Sprintf("flow %q is over: %s", e.Flow, e.Outcome)
}

// FlowHeldError says that a worker drives a flow, so that nobody else does. It matches
// log.ErrConflict; nothing was written.
type FlowHeldError struct {
	Flow, Worker string
	Until        time.Time // by the log's time; when it is past, Recover says what becomes of the flow
}

func (e *FlowHeldError) Error() string {
	return fmt.Sprintf("flow %q is driven by %q until %s", e.Flow, e.Worker, e.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is log.ErrConflict.
func (e *FlowHeldError) Is(target error) bool { return target == log.ErrConflict }

// FlowFencedError says that a worker does not hold its claim on a flow any more: it was lost,
// gave the flow back, or claimed it anew. It matches log.ErrConflict; nothing was written.
type FlowFencedError struct {
	Flow  string
	Fence events.Offset // the claim that the worker has
	Have  events.Offset // the flow's last record, by which it went on
}

func (e *FlowFencedError) Error() string {
	return fmt.Sprintf("flow %q: claim %v is over, the flow went on at %v", e.Flow, e.Fence, e.Have)
}

// Is reports whether target is log.ErrConflict.
func (e *FlowFencedError) Is(target error) bool { return target == log.ErrConflict }

// FlowChildError says that the flow that a state started is not over, so that the state is not
// left. Nothing was written.
type FlowChildError struct {
	Flow, State, Child string
}

func (e *FlowChildError) Error() string {
	return fmt.Sprintf("flow %q: %q is not left before flow %q is over", e.Flow, e.State, e.Child)
}
