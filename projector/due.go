package projector

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Due names a subject that needs work at a time. It is a hint: the worker reads the log again and decides.
type Due struct {
	What    string // a constant below
	Subject events.Subject
	At      time.Time
	About   events.Offset // the record in question, such as an open question; 0: unspecified
}

// Kinds of due work, with the meaning of subject and time.
const (
	DueQueue         = "queue"          // a queue: the next time that one of its items needs a decision, see QueueItem.Decides
	DueOverdue       = "overdue"        // the inbox of a sender: the deadline of an open question
	DueGone          = "gone"           // the inbox of a receiver that is gone and left unread or unanswered mail: when the receiver left
	DueHandover      = "handover"       // an inbox with an unread letter whose delivery was refused: the next attempt
	DueFlow          = "flow"           // an unfinished flow: the end of its worker's lease, or, if the flow ended without completing, the start of its state
	DueAgentLease    = "agent.lease"    // an agent: the end of its lease
	DueAgentEnded    = "agent.ended"    // an agent that ended: the time of its end
	DueAgentArchived = "agent.archived" // an archived agent: when it was archived
	DueDocument      = "document"       // a document that expires: its expiry time
	DueOverlay       = "overlay"        // an overlay whose agent ended: the time of the end
	DueOrphan        = "orphan"         // a flow, document or changeset whose owner is gone: when the owner left
)

// IsWork reports whether records of a subject can make work due. These subjects are documents, queues and their items,
// inboxes, agents and flows.
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
