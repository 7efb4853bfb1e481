package tavern

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// Commitment is a promise of an agent, with the command that shows whether it is kept. This package never runs that
// command. A commitment is an entry of the agent's node file, and keeps its id as long as it is there.
type Commitment struct {
	ID          string
	Description string // one line
	Assertion   string // a shell command, one line; "": a person decides
	Status      string
	Failure     string // why it failed, or ""
}

// Statuses of commitments.
const (
	CommitmentPending   = nodefile.Pending
	CommitmentVerifying = nodefile.Verifying
	CommitmentPassed    = nodefile.Passed
	CommitmentFailed    = nodefile.Failed
)

// commitmentTransitions lists the statuses that may follow each status.
var commitmentTransitions = map[string][]string{
	CommitmentPending:   {CommitmentVerifying},
	CommitmentVerifying: {CommitmentPassed, CommitmentFailed, CommitmentPending},
	CommitmentPassed:    {CommitmentPending},
	CommitmentFailed:    {CommitmentPending},
}

// Commit adds a pending commitment to the agent. If its text cannot be written into the file, the error is *NodeError.
func (a *Agent) Commit(ctx context.Context, description, assertion string) (Commitment, error) {
	c := Commitment{ID: uuid.NewString(), Description: description, Assertion: assertion, Status: CommitmentPending}
	if err := a.Add(ctx, c); err != nil {
		return Commitment{}, err
	}
	return c, nil
}

// Add is Commit with the caller's id, a UUID. After log.ErrUnknown the caller can repeat it: the agent gets one
// commitment. If the agent has the id already, its commitment stays unchanged.
func (a *Agent) Add(ctx context.Context, c Commitment) error {
	c.Status, c.Failure = CommitmentPending, ""
	return a.recommit(ctx, func(agent string, list []nodefile.Commitment) ([]nodefile.Commitment, error) {
		if _, err := commitmentIn(agent, list, c.ID); err == nil {
			return list, nil
		}
		return append(list, nodefile.Commitment(c)), nil
	})
}

// Remove removes a commitment. Here and below, if the agent has no such commitment, the error is tally.ErrNotFound.
func (a *Agent) Remove(ctx context.Context, id string) error {
	return a.recommit(ctx, func(agent string, list []nodefile.Commitment) ([]nodefile.Commitment, error) {
		i, err := commitmentIn(agent, list, id)
		if err != nil {
			return nil, err
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// Amend changes a commitment's text. It keeps its id and becomes pending, because it is another promise.
func (a *Agent) Amend(ctx context.Context, id, description, assertion string) error {
	return a.recommit(ctx, func(agent string, list []nodefile.Commitment) ([]nodefile.Commitment, error) {
		i, err := commitmentIn(agent, list, id)
		if err != nil {
			return nil, err
		}
		if c := &list[i]; c.Description != description || c.Assertion != assertion {
			*c = nodefile.Commitment{ID: id, Description: description, Assertion: assertion, Status: CommitmentPending}
		}
		return list, nil
	})
}

// Verify marks a pending commitment as being verified. Here and below, the error is *TransitionError if the status may
// not follow the present one. If the commitment has the status already, nothing is written.
func (a *Agent) Verify(ctx context.Context, id string) error {
	return a.judge(ctx, id, CommitmentVerifying, "")
}

// Pass marks a commitment that was being verified as kept.
func (a *Agent) Pass(ctx context.Context, id string) error {
	return a.judge(ctx, id, CommitmentPassed, "")
}

// Fail marks a commitment that was being verified as failed, with the cause.
func (a *Agent) Fail(ctx context.Context, id, why string) error {
	return a.judge(ctx, id, CommitmentFailed, why)
}

// Reset makes a commitment pending again, whatever its status.
func (a *Agent) Reset(ctx context.Context, id string) error {
	return a.judge(ctx, id, CommitmentPending, "")
}

func (a *Agent) judge(ctx context.Context, id, to, why string) error {
	return a.recommit(ctx, func(agent string, list []nodefile.Commitment) ([]nodefile.Commitment, error) {
		i, err := commitmentIn(agent, list, id)
		if err != nil {
			return nil, err
		}
		c := &list[i]
		if c.Status == to {
			return list, nil
		}
		if allowed := commitmentTransitions[c.Status]; !slices.Contains(allowed, to) {
			return nil, &TransitionError{What: agent + " commitment " + id, From: c.Status, To: to, Allowed: slices.Clone(allowed)}
		}
		c.Status, c.Failure = to, why
		return list, nil
	})
}

func commitmentIn(agent string, list []nodefile.Commitment, id string) (int, error) {
	i := slices.IndexFunc(list, func(c nodefile.Commitment) bool { return c.ID == id })
	if i < 0 {
		return 0, fmt.Errorf("%s commitment %s: %w", agent, id, tally.ErrNotFound)
	}
	return i, nil
}

// recommit changes the commitments. Those of an agent that has ended cannot change.
func (a *Agent) recommit(ctx context.Context, do func(agent string, list []nodefile.Commitment) ([]nodefile.Commitment, error)) error {
	return a.change(ctx, func(i *AgentInfo) (agentChange, error) {
		agent := "agent " + i.ID
		switch {
		case i.NodeErr != nil:
			return agentChange{}, fmt.Errorf("%s: %w", agent, i.NodeErr)
		case i.Node == nil:
			return agentChange{}, fmt.Errorf("%s: %w", i.document, tally.ErrNotFound)
		}
		err := i.checkOpen()
		if err != nil {
			return agentChange{}, err
		}
		n := i.node
		if n.Commitments, err = do(agent, slices.Clone(n.Commitments)); err != nil || slices.Equal(n.Commitments, i.node.Commitments) {
			return agentChange{}, err
		}
		file, err := i.edited(n, a.st.Now())
		return agentChange{set: []events.Field{countsField(n.Commitments)}, file: file}, err
	})
}
