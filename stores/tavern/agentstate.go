package tavern

import (
	"fmt"
	"slices"
	"strings"
)

// States of an agent. Its session has them as status; an agent without a status is idle.
const (
	AgentIdle      = "idle"
	AgentWorking   = "working"
	AgentWaiting   = "waiting" // for an answer
	AgentVerifying = "verifying"
	AgentDone      = "done"
	AgentError     = "error"
	AgentReaped    = "stopped:reaped"
	AgentDismissed = "stopped:dismissed"
	AgentFailed    = "stopped:failed"
	AgentArchived  = "archived"
)

// stopped is the prefix of the states of stopped agents.
const stopped = "stopped:"

// transitions lists the states that may follow each state. A stopped agent can only be archived, and an archived agent
// stays archived.
var transitions = map[string][]string{
	AgentIdle:      {AgentWorking, AgentDone, AgentError, AgentDismissed},
	AgentWorking:   {AgentWaiting, AgentVerifying, AgentIdle, AgentDone, AgentError},
	AgentWaiting:   {AgentWorking, AgentIdle, AgentError, AgentReaped, AgentDismissed, AgentFailed},
	AgentVerifying: {AgentWorking, AgentDone, AgentError},
	AgentDone:      {AgentWorking, AgentArchived},
	AgentError:     {AgentWorking, AgentArchived},
	AgentReaped:    {AgentArchived},
	AgentDismissed: {AgentArchived},
	AgentFailed:    {AgentArchived},
	AgentArchived:  nil,
}

// agentTransitions returns the states that may follow a state.
func agentTransitions(from string) []string {
	if strings.HasPrefix(from, stopped) {
		from = AgentFailed
	}
	return slices.Clone(transitions[from])
}

// isAgentState reports whether a state is one of an agent.
func isAgentState(state string) bool {
	_, ok := transitions[state]
	return ok || strings.HasPrefix(state, stopped) && len(state) > len(stopped)
}

// checkTransition refuses a transition that the table lacks, a way back to work without a reason, and AgentDone with
// commitments that have not passed.
func (i *AgentInfo) checkTransition(to, reason string, force bool) error {
	e := &TransitionError{What: "agent " + i.ID, From: i.State, To: to, Allowed: agentTransitions(i.State)}
	switch {
	case !slices.Contains(e.Allowed, to):
		return e
	case to == AgentWorking && (i.State == AgentDone || i.State == AgentError) && reason == "":
		e.Reason = "reopening it requires a reason"
	case to == AgentDone && force && reason == "":
		e.Reason = "forcing it requires a reason"
	case to == AgentDone && !force && i.NodeErr != nil:
		e.Reason = "its commitments cannot be read: " + i.NodeErr.Error()
	case to == AgentDone && !force && !i.AllPassed():
		e.Reason = fmt.Sprintf("%d of %d commitments have not passed", len(i.Commitments)-i.count(CommitmentPassed), len(i.Commitments))
	default:
		return nil
	}
	return e
}

// checkOpen refuses a change of commitments if the agent has ended.
func (i *AgentInfo) checkOpen() error {
	if !i.Dead() && i.State != AgentDone {
		return nil
	}
	return &TransitionError{What: "agent " + i.ID, From: i.State, To: i.State, Allowed: agentTransitions(i.State), Reason: "its commitments cannot change"}
}
