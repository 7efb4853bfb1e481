package tavern

import (
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// ErrReceiver matches every ReceiverError.
var ErrReceiver = errors.New("no such receiver")

// A ReceiverError reports that a receiver gets no messages: it does not exist, or is archived or stopped. Nothing was
// written. It matches ErrReceiver, and tally.ErrNotFound if the receiver is unknown.
type ReceiverError struct {
	Receiver string
	Status   string // "": unknown
}

func (e *ReceiverError) Error() string {
	if e.Status == "" {
		return fmt.Sprintf("inbox %q: no such receiver", e.Receiver)
	}
	return fmt.Sprintf("inbox %q: the receiver is %s", e.Receiver, e.Status)
}

// Is reports whether target is ErrReceiver, or, for an unknown receiver, ErrNotFound.
func (e *ReceiverError) Is(target error) bool {
	return target == ErrReceiver || target == events.ErrNotFound && e.Status == ""
}

// A MessageError reports that an inbox does not have a message, or that another message has its id. It matches
// tally.ErrNotFound, or if Have is set tally.ErrExists. Nothing was written.
type MessageError struct {
	Inbox string
	ID    string
	Have  events.Offset // the message that has the id, or 0
}

func (e *MessageError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("inbox %q: no message %q", e.Inbox, e.ID)
	}
	return fmt.Sprintf("inbox %q: another message has the id %q, at %v", e.Inbox, e.ID, e.Have)
}

// Is reports whether target is ErrExists if another message has the id, or else ErrNotFound.
func (e *MessageError) Is(target error) bool {
	return target == tally.ErrExists && e.Have != 0 || target == events.ErrNotFound && e.Have == 0
}

// An AmendError reports that a message has a newer text than the amended one. It matches log.ErrConflict. Nothing was
// written.
type AmendError struct {
	Inbox string
	ID    string
	Base  events.Offset // the text that the caller amended
	Have  events.Offset // the newest text
}

func (e *AmendError) Error() string {
	return fmt.Sprintf("inbox %q: message %q has a newer text, of %v instead of %v", e.Inbox, e.ID, e.Have, e.Base)
}

// Is reports whether target is log.ErrConflict.
func (e *AmendError) Is(target error) bool { return target == log.ErrConflict }

// A SeenError reports that the cursor cannot move to an offset: it is there already, or the inbox has no record there.
// It matches log.ErrConflict. Nothing was written.
type SeenError struct {
	Inbox  string
	Offset events.Offset
	Cursor events.Offset
	Last   events.Offset // of the inbox's records
}

func (e *SeenError) Error() string {
	if e.Offset > e.Last {
		return fmt.Sprintf("inbox %q: the cursor cannot move to %v: the last record is at %v", e.Inbox, e.Offset, e.Last)
	}
	return fmt.Sprintf("inbox %q: the message at %v was seen already: the cursor is at %v", e.Inbox, e.Offset, e.Cursor)
}

// Is reports whether target is log.ErrConflict.
func (e *SeenError) Is(target error) bool { return target == log.ErrConflict }
