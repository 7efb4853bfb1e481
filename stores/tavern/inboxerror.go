package tavern

import (
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// ErrReceiver says that nobody gets messages under a name: see ReceiverError.
var ErrReceiver = errors.New("no such receiver")

// A ReceiverError says that nobody gets messages under a name: there is no such receiver, or
// it is archived or stopped. Nothing was written. One that is not known matches
// tally.ErrNotFound, and each ErrReceiver.
type ReceiverError struct {
	Receiver string
	Status   string // "": it is not known
}

func (e *ReceiverError) Error() string {
	if e.Status == "" {
		return fmt.Sprintf("inbox %q: no such receiver", e.Receiver)
	}
	return fmt.Sprintf("inbox %q: the receiver is %s", e.Receiver, e.Status)
}

// Is reports whether target is ErrReceiver, or ErrNotFound of a receiver that is not known.
func (e *ReceiverError) Is(target error) bool {
	return target == ErrReceiver || target == events.ErrNotFound && e.Status == ""
}

// A MessageError says that an inbox does not have a message, or that another message has
// its id. It matches tally.ErrNotFound, or with Have tally.ErrExists. Nothing was written.
type MessageError struct {
	Inbox string
	ID    string
	Have  events.Offset // of the message that has the id; 0: there is none
}

func (e *MessageError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("inbox %q: no message %q", e.Inbox, e.ID)
	}
	return fmt.Sprintf("inbox %q: message %q is another one, at %v", e.Inbox, e.ID, e.Have)
}

// Is reports whether target is ErrExists if another message has the id, and ErrNotFound if
// none has.
func (e *MessageError) Is(target error) bool {
	return target == tally.ErrExists && e.Have != 0 || target == events.ErrNotFound && e.Have == 0
}

// An AmendError says that a message has a newer text than the one that was to be amended. It
// matches log.ErrConflict. Nothing was written.
type AmendError struct {
	Inbox string
	ID    string
	Base  events.Offset // of the text that the caller knew
	Have  events.Offset // of the newest one
}

func (e *AmendError) Error() string {
	return fmt.Sprintf("inbox %q: message %q has a text at %v, newer than %v", e.Inbox, e.ID, e.Have, e.Base)
}

// Is reports whether target is log.ErrConflict.
func (e *AmendError) Is(target error) bool { return target == log.ErrConflict }

// A SeenError says that messages cannot be seen up to an offset: the cursor is there already,
// or the inbox has nothing there yet. It matches log.ErrConflict. Nothing was written.
type SeenError struct {
	Inbox  string
	Offset events.Offset
	Cursor events.Offset
	Last   events.Offset // of the inbox's records
}

func (e *SeenError) Error() string {
	if e.Offset > e.Last {
		return fmt.Sprintf("inbox %q: %v cannot be seen: its last record is at %v", e.Inbox, e.Offset, e.Last)
	}
	return fmt.Sprintf("inbox %q: %v was seen: its cursor is at %v", e.Inbox, e.Offset, e.Cursor)
}

// Is reports whether target is log.ErrConflict.
func (e *SeenError) Is(target error) bool { return target == log.ErrConflict }
