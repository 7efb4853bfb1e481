package projector

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Due is a subject that is to be looked at at a time. It decides nothing: whoever looks
// reads the log again.
type Due struct {
	What    string // one of those below
	Subject events.Subject
	At      time.Time
	About   events.Offset // the record that it is about, such as an open question; 0: not said
}

// What is due, with what the subject and the time are.
const (
	DueQueue         = "queue"          // a queue: when one of its items is to be looked at, see QueueItem.Decides
	DueOverdue       = "overdue"        // the inbox of one who asks: the deadline of an open question
	DueGone          = "gone"           // the inbox of a receiver that is gone, with mail that nobody read or answered: when it went
	DueHandover      = "handover"       // an inbox with an unread letter that was refused: the next try
	DueFlow          = "flow"           // a flow that is not over: when the lease of its worker is over, or the flow ended, and did not complete, that its state started
	DueAgentLease    = "agent.lease"    // an agent: when its lease is over
	DueAgentEnded    = "agent.ended"    // an agent that ended: when
	DueAgentArchived = "agent.archived" // an agent that was archived: when
	DueDocument      = "document"       // a document that expires: when
	DueOverlay       = "overlay"        // an overlay whose agent ended: when that was
	DueOrphan        = "orphan"         // a flow, document or changeset whose owner is gone: when that went
)

// IsWork reports whether records of a subject can make something due: those of documents,
// queues and their items, inboxes, agents and flows.
func IsWork(sub events.Subject) bool {
	if !sub.IsSession() {
		return sub.Kind != events.KindBlob && sub.Kind != events.KindUnit
	}
	switch kind, name, _ := strings.Cut(sub.ID, "/"); kind {
	case events.KindQueue, events.KindItem, events.KindInbox, events.KindAgent, events.KindFlow:
		return name != ""
	}
	return false
}
