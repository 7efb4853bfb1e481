package tavern

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/projector"
)

// queue decides on the items of a queue that no worker holds.
func (d *decider) queue(ctx context.Context, due daemon.Due, now time.Time) (list []Decision, err error) {
	id, ok := strings.CutPrefix(due.Subject.ID, projector.QueueSession(""))
	if !ok {
		return nil, nil
	}
	dec, err := QueueOf(d.st, id).Decide(ctx, now)
	if err != nil {
		return nil, err
	}
	return append(dec.Ends, Decision{Next: dec.Next}), nil
}

// Decide is DecideQueue for the queue as it is now.
func (q *Queue) Decide(ctx context.Context, now time.Time) (QueueDecision, error) {
	qc, err := q.enter(ctx)
	if err != nil {
		return QueueDecision{}, err
	}
	defer qc.leave()
	if err := qc.catchUp(ctx); err != nil {
		return QueueDecision{}, err
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	waits := func(i *projector.QueueItem) bool { return len(qc.work.Waits(i)) > 0 }
	return DecideQueue(q.sub.Namespace, qc.work.Queue, maps.Values(qc.work.Items), waits, now)
}

// flow decides on a flow whose worker may be lost. If the flow's owner is gone, that decision takes precedence, so that
// the result does not depend on which daemon looks first.
func (d *decider) flow(ctx context.Context, due daemon.Due, now time.Time) ([]Decision, error) {
	id, ok := strings.CutPrefix(due.Subject.ID, flowSession(""))
	if !ok {
		return nil, nil
	}
	if d.o.Orphans > 0 {
		list, err := d.orphanFlow(ctx, due.Subject, now)
		if err != nil || slices.ContainsFunc(list, func(d Decision) bool { return len(d.Parts) > 0 }) {
			return list, err
		}
	}
	dec, err := FlowOf(d.st, id).Due(ctx, now)
	if errors.Is(err, tally.ErrNotFound) {
		return nil, nil
	}
	return []Decision{dec}, err
}

// agent decides whether an agent is lost, archived or purged.
func (d *decider) agent(ctx context.Context, due daemon.Due, now time.Time) ([]Decision, error) {
	id, ok := strings.CutPrefix(due.Subject.ID, agentSessions)
	if !ok {
		return nil, nil
	}
	i, err := AgentOf(d.st, id).Info(ctx)
	if _, other := errors.AsType[*tally.KindError](err); other || errors.Is(err, tally.ErrNotFound) {
		return nil, nil
	}
	if err == nil {
		i.from, err = d.st.LeaseTime(ctx)
	}
	if err != nil {
		return nil, err
	}
	dec, err := DecideAgent(i, now, d.windows())
	return []Decision{dec}, err
}

// windows returns the windows for agents. Only the janitor archives and purges.
func (d *decider) windows() AgentWindows {
	if d.name != DaemonJanitor {
		return AgentWindows{}
	}
	return d.o.Agents
}
