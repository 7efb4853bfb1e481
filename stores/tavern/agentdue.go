package tavern

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// AgentWindows say how long agents that were stopped stay. The zero value keeps them.
type AgentWindows struct {
	Archive time.Duration // from when one was stopped until it is archived; 0: never
	Purge   time.Duration // from then until it is purged; 0: never
}

// decided is the source of what nobody but time decides, the same wherever that is noticed.
const decided = "urn:tally:tavern"

// DecideAgent says what is due of an agent as it was read, by the log's time now, and why:
// lost, archived or purged. It does nothing itself. One that is at work and whose lease is over is in error, being lost. One
// that was stopped is archived when its window is over, and purged when the second one is.
// One that is alive, or was archived by somebody without having been stopped, stays.
//
// The append rests on what was read and has ids that follow from it.
func DecideAgent(i *AgentInfo, now time.Time, w AgentWindows) (Decision, error) {
	switch {
	case i.session == 0 || !i.PurgedAt.IsZero():
		return Decision{}, nil
	case i.atWork():
		return i.due(i.Lease.Until, now, "lost", func() ([]log.Part, error) { return i.becomes(AgentError, "lost", now) })
	case strings.HasPrefix(i.State, stopped) && w.Archive > 0 && !i.FinishedAt.IsZero():
		return i.due(i.FinishedAt.Add(w.Archive), now, "archived", func() ([]log.Part, error) { return i.becomes(AgentArchived, i.StateReason, now) })
	case i.State == AgentArchived && w.Purge > 0 && !i.FinishedAt.IsZero() && !i.ArchivedAt.IsZero():
		return i.due(i.ArchivedAt.Add(w.Purge), now, "purged", func() ([]log.Part, error) { return i.purge(now) })
	}
	return Decision{}, nil
}

// atWork reports whether somebody has a lease on the agent, and should have.
func (i *AgentInfo) atWork() bool {
	return i.Lease.Holder != "" && (i.State == AgentWorking || i.State == AgentWaiting || i.State == AgentVerifying)
}

func (i *AgentInfo) due(at, now time.Time, why string, do func() ([]log.Part, error)) (Decision, error) {
	if at.After(now) {
		return Decision{Next: at}, nil
	}
	parts, err := do()
	return Decision{Parts: parts, Why: why}, err
}

func (i *AgentInfo) becomes(state, reason string, now time.Time) ([]log.Part, error) {
	from := later(now, i.from)
	c, err := i.moved(state, reason, agentTimes{logTime: now, leaseStart: from, fileTime: from})
	if err != nil {
		return nil, err
	}
	return i.parts(decided, state, c)
}

// purge takes away what can be read of the agent: its file, and the agent. The bytes stay
// in the log.
func (i *AgentInfo) purge(now time.Time) ([]log.Part, error) {
	parts, err := i.parts(decided, "purge", agentChange{set: events.Fields{textField("purgedAt", string(events.TimestampOf(now)))}, reason: "purged"})
	if err != nil || i.head == 0 || i.erased {
		return parts, err
	}
	e, err := events.New(decided, i.document, &events.DocumentDeleted{Reason: events.ReasonPurged})
	e.ID = events.DerivedID("tavern/agent", i.ID, "purge", i.session.String(), "document")
	return append(parts, log.Part{Subject: i.document, Expect: log.At(i.head), Events: []events.Event{e}}), err
}
