package tavern

import (
	"cmp"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Overdue decides on a message that awaits an answer (projector.Mail.Open): when its deadline
// has passed, by the log's time, its sender gets a malfunction instead. asOf is the offset up
// to which the inboxes are known: if anything came to the sender's since, as the answer
// might, the decision is void, and is to be made again on what is there.
//
// There is one malfunction for a message, whatever its reasons: its id follows from the
// message alone.
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

// Gone decides on a message that its receiver has neither seen nor answered, and will not, as
// its status is archived or stopped, of which there is no way back: its sender gets a
// malfunction. asOf is as for Overdue.
func Gone(ns string, unread projector.Letter, status string, asOf events.Offset) (Decision, error) {
	if !projector.IsGone(status) {
		return Decision{}, nil
	}
	return malfunction(ns, unread, MalfunctionGone, asOf)
}

// MaxRefusals is after how many refusals the sender of a message is told.
const MaxRefusals = 8

// HandOverDue decides on the message that its receiver is to get next, of which so many
// attempts to hand it over were refused (Inbox.Refused): Next is when to try again, which may
// have passed. It is tried until it is seen, as those behind it wait; after MaxRefusals its
// sender gets a malfunction. asOf is as for Overdue.
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

// malfunction decides to tell the sender of a message what became of it, if nothing came to
// its inbox since an offset. Nobody is told of a notice or a malfunction, which await
// nothing, and of a message without a sender, or with an id that no answer can name, nobody
// can be.
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

// nameOf returns a name of a message that came, "" if no message may be sent with it: it came
// before names were bounded, or around Send.
func nameOf(name string) string {
	if len(name) > events.MaxIDLen {
		return ""
	}
	return name
}
