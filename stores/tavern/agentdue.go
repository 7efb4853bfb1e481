package tavern

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// AgentWindows are periods after which stopped agents are removed. The zero value keeps them.
type AgentWindows struct {
	Archive time.Duration // from the stop until the agent is archived; 0: never
	Purge   time.Duration // from the archiving until the agent is purged; 0: never
}

// decided is the source of events that follow from time alone. It is the same in every process.
const decided = "urn:tally:tavern"

// DecideAgent returns what is due for an agent as it was read, by the log's time now: lost, archived or purged. It does
// no I/O. A working agent whose lease has ended gets the state error with the reason lost. A stopped agent is archived
// after the first window, and purged after the second. Other agents stay.
//
// The append is guarded by the records that were read, and its ids follow from them.
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

// atWork reports whether the agent is in a working state and has a lease, which may have ended.
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

// purge deletes the agent's file and marks the agent as purged. The bytes stay in the log.
func (i *AgentInfo) purge(now time.Time) ([]log.Part, error) {
	parts, err := i.parts(decided, "purge", agentChange{set: events.Fields{textField("purgedAt", string(events.TimestampOf(now)))}, reason: "purged"})
	if err != nil || i.head == 0 || i.erased {
		return parts, err
	}
	e, err := events.New(decided, i.document, &events.DocumentDeleted{Reason: events.ReasonPurged})
	e.ID = events.DerivedID("tavern/agent", i.ID, "purge", i.session.String(), "document")
	return append(parts, log.Part{Subject: i.document, Expect: log.At(i.head), Events: []events.Event{e}}), err
}
