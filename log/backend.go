package log

import (
	"context"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Backend is what a Log needs of the store below it: one ordered list of messages
// with a per-subject check on writing. Everything else (validation, identity,
// order of calls, counting) is the Log's. Methods must be safe for concurrent use.
//
// What an answer told of is there for every later one: a Backend of several servers
// that do not all know the same MUST NOT go back behind an offset that it returned.
type Backend interface {
	// Publish stores the messages, all or none, next to each other and in this
	// order. It MUST check each Expect before it stores, and MUST recognise ids that it
	// stored within the last two minutes: a single message gets the first receipt
	// again with Duplicate set, several get ErrDuplicate.
	//
	// It returns within a bounded time, also under a context without deadline.
	//
	// Errors: ErrConflict, ErrDuplicate, ErrFull, ErrUnavailable, ErrBusy, ErrGuard and
	// any other error mean that nothing was stored. ErrUnknown, and nothing else,
	// means that it may have been. Of a single Write a conflict is a *ConflictError,
	// unless a write to the subject is under way.
	Publish(ctx context.Context, p Publication) (Receipt, error)

	// Scan opens a cursor. It MUST skip nothing that can be read, and may skip
	// what cannot.
	Scan(ctx context.Context, q Query) (Cursor, error)

	// Get returns the message at an offset, or ErrNotFound if there is no message or it
	// cannot be read.
	Get(ctx context.Context, at events.Offset) (Message, error)

	// Last returns the last message of one subject, or ErrNotFound.
	Last(ctx context.Context, subject string) (Message, error)

	// State returns the bounds of what is stored.
	State(ctx context.Context) (State, error)

	// Subjects counts the messages of each subject that matches the filter.
	Subjects(ctx context.Context, filter string) (map[string]uint64, error)

	// Close releases what the backend itself opened. No method is called later.
	Close() error
}

// firsts is a Backend that finds the first message of a subject without a scan.
type firsts interface {
	// First returns the first message of one subject that can be read, or ErrNotFound. What
	// it cannot find so is errors.ErrUnsupported.
	First(ctx context.Context, subject string) (Message, error)
}

// Publication is one append, to one subject or several.
type Publication struct {
	Writes []Write // each to another subject; at least one has messages

	// Segment is what a Segmented backend was at when the append was decided; 0 if
	// that does not matter. If it is at another, it MUST answer ErrBusy.
	Segment int
}

// Write is what a publication stores of one subject. Without messages it is a guard: the
// others are stored only if the subject is as expected.
type Write struct {
	Subject  string
	Messages []Outgoing
	Expect   Exactly
}

// Messages is the number of messages of all writes.
func (p Publication) Messages() int {
	n := 0
	for _, w := range p.Writes {
		n += len(w.Messages)
	}
	return n
}

// pipelined is a Backend that sends one publication after the other without waiting for
// answers in between. Each has one message and expects nothing; they are stored in their
// order, by the rules of Publish, and each by itself: it says of each what became of it.
type pipelined interface {
	PublishEach(ctx context.Context, list []Publication) ([]Receipt, error)
}

// Segmented is a Backend that begins anew at times: from then on Publish does not
// recognise the ids that it stored before.
type Segmented interface {
	// Segment returns a number that grows each time, and when the last time was; zero:
	// nothing was stored before.
	Segment() (n int, begun time.Time)
}

// indexed is a Backend that knows of old messages which ids are among them.
type indexed interface {
	// Indexed is the offset up to which it does.
	Indexed() events.Offset

	// MayHold lists the spans up to an offset, which Indexed returned at some time, in
	// which a subject may have a message with an id. It leaves out none that has.
	MayHold(subject, id string, upto events.Offset) []span
}

// span is a part of the log: After is exclusive, Upto inclusive.
type span struct {
	After, Upto events.Offset
}

// Outgoing is one message to store.
type Outgoing struct {
	ID     string // of the server's deduplication
	Header []byte // fields of the header as NATS carries them: lines "name: value\r\n"
	Data   []byte
}

// Fields returns the header's fields by their names.
func (o Outgoing) Fields() map[string][]string {
	fields := make(map[string][]string, 10)
	for line := range strings.SplitSeq(string(o.Header), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			fields[name] = append(fields[name], value)
		}
	}
	return fields
}

// headerSize is the number of bytes that the header takes on the wire.
func (o Outgoing) headerSize() int {
	return len("NATS/1.0\r\n") + len(o.Header) + len("\r\n")
}

// Exactly is the subject's last offset as the writer knows it, if Set.
type Exactly struct {
	Set bool
	At  events.Offset // 0: no message yet
}

// Receipt says where a publication was stored.
type Receipt struct {
	Last      events.Offset // of the last message
	Duplicate bool          // it was there before; Last says where
}

// Message is a stored message. It belongs to the reader.
type Message struct {
	Subject string
	Header  map[string][]string
	Data    []byte
	Offset  events.Offset
	Time    time.Time // at which it was stored

	wire string // the header as NATS carries it; then Header is nil
}

// State is the extent of a log. Both are 0 when it is empty.
type State struct {
	First, Last events.Offset

	Now time.Time // by the clock that dates messages; zero: it is not known
}

// Query selects messages for a cursor.
type Query struct {
	Filter string        // NATS subject, with wildcards or without
	After  events.Offset // exclusive
	Upto   events.Offset // inclusive; not used when Live
	Want   int           // about how many will be taken; 0: all
	Live   bool          // the cursor never ends: it waits for what comes

	// Match, if not nil, says of a subject whether its messages are looked at: those of
	// others may come without header and data.
	Match func(subject string) bool
}

// Cursor returns messages in the order of their offsets. One goroutine uses it.
type Cursor interface {
	// Announced is the number of messages that match the filter after After, by
	// the backend's own index, when it is asked first or earlier. It MUST count those
	// that cannot be read if After is 0, SHOULD else, and may count messages beyond Upto: up to a bound that
	// depends on Upto alone.
	Announced(ctx context.Context) (uint64, error)

	// Next returns the next message, or io.EOF behind the last one up to Upto. Any
	// other error ends the cursor: what it did not return may still be there.
	Next(ctx context.Context) (Message, error)

	// Close leaves nothing behind, on either side.
	Close()
}
