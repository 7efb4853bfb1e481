package tavern

import (
	"cmp"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Overdue decides on a message that expects an answer (projector.Mail.Open). When its deadline has passed, by the log's
// time, its sender gets a malfunction. asOf is the offset up to which the inboxes were read. If the sender's inbox has
// newer records, the decision has no effect, and the caller decides again.
//
// A message has at most one malfunction, whatever the reason: its id follows from the message alone.
func Overdue(ns string, asked projector.Letter, asOf events.Offset, now time.Time) (Decision, error) {
	deadline, ok := asked.Deadline.Time()
	if !ok || !asked.Awaits() {
		return Decision{}, nil
	}
	if now.Before(deadline) {
		return Decision{Next: deadline}, nil
	}
	return malfunction(ns, asked, MalfunctionOverdue, asOf)
}

// Gone decides on a message that its receiver has neither seen nor answered, and will not, because its status is
// archived or stopped. The message's sender gets a malfunction. asOf is as for Overdue.
func Gone(ns string, unread projector.Letter, status string, asOf events.Offset) (Decision, error) {
	if !projector.IsGone(status) {
		return Decision{}, nil
	}
	return malfunction(ns, unread, MalfunctionGone, asOf)
}

// MaxRefusals is the number of refusals after which a message's sender is told.
const MaxRefusals = 8

// HandOverDue decides on the receiver's next message, after attempts to hand it over were refused (Inbox.Refused). Next
// is when to try again, which may have passed. The message is tried until it is seen, because later messages wait for
// it. After MaxRefusals its sender gets a malfunction. asOf is as for Overdue.
func HandOverDue(ns string, next projector.Letter, h projector.HandOver, asOf events.Offset, now time.Time) (Decision, error) {
	retry, ok := h.Retry()
	if h.At != next.Offset || !ok {
		return Decision{Next: now}, nil
	}
	var d Decision
	if h.Refusals >= MaxRefusals {
		var err error
		if d, err = malfunction(ns, next, MalfunctionRefused, asOf); err != nil {
			return d, err
		}
	}
	d.Next = retry
	return d, nil
}

// malfunction decides to tell a message's sender why it failed, if the sender's inbox has no records after asOf.
// Notices and malfunctions expect nothing, so their senders are not told. Without a sender, or with an id that no
// answer can name, it returns the zero Decision.
func malfunction(ns string, of projector.Letter, why string, asOf events.Offset) (Decision, error) {
	if of.From == "" || of.ID == "" || len(of.ID) > events.MaxIDLen || of.Amends != "" || of.Type == TypeNotice || of.Type == TypeMalfunction ||
		projector.InboxSubject(ns, of.From).Validate() != nil {
		return Decision{}, nil
	}
	body, err := rawjson.Marshal(struct {
		Reason   string           `json:"reason"`
		Inbox    string           `json:"inbox"`
		ID       string           `json:"id"`
		At       events.Offset    `json:"at"`
		Expects  string           `json:"expects,omitempty"`
		Deadline events.Timestamp `json:"deadline,omitempty"`
	}{why, of.Receiver, of.ID, of.Offset, of.Expects, of.Deadline})
	if err != nil {
		return Decision{}, err
	}
	ref := of.Ref()
	meta := projector.MessageMeta{ID: events.DerivedID("malfunction", of.From, of.Receiver, of.ID), From: Delivery, To: of.From, Type: TypeMalfunction, Malfunction: why,
		Thread: cmp.Or(nameOf(of.Thread), projector.InboxThread), ReplyTo: of.ID, Correlation: cmp.Or(nameOf(of.Correlation), of.ID), About: &ref}
	e, err := eventOf(ns, eventID(meta.ID), meta, body)
	if err != nil {
		return Decision{}, err
	}
	part := log.Part{Subject: e.Subject, Expect: log.Since(asOf, events.TypeTurnAppended), Events: []events.Event{e}}
	return Decision{Parts: []log.Part{part}, Why: why}, nil
}

// nameOf returns a name of a received message, or "" if the name is too long to be sent. Older messages, or those
// appended without Send, may have such names.
func nameOf(name string) string {
	if len(name) > events.MaxIDLen {
		return ""
	}
	return name
}
