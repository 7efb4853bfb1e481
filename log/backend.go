package log

import (
	"context"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Backend is the store below a Log: one ordered list of messages with a per-subject check on writing. The Log does
// everything else (validation, identity, order of calls, counting). Methods must be safe for concurrent use.
//
// Answers never go back: if a Backend has several servers of which some lag behind, it MUST NOT answer as of an offset
// before one that it has returned.
type Backend interface {
	// Publish stores the messages, all or none, next to each other and in this order. It MUST check each Expect before
	// it stores, and MUST recognise ids that it stored within the last two minutes, or the last minute if the Log is the
	// owner (Host.Owner): a single message gets the first receipt again with Duplicate set, several get ErrDuplicate.
	//
	// It returns within a bounded time, also under a context without deadline.
	//
	// Errors: ErrConflict, ErrDuplicate, ErrFull, ErrUnavailable, ErrBusy, ErrGuard and any other error but ErrUnknown
	// mean that nothing was stored. ErrUnknown means that the messages may have been stored. For a single Write, a
	// conflict is a *ConflictError, unless another write to the subject is under way.
	Publish(ctx context.Context, p Publication) (Receipt, error)

	// Scan opens a cursor. It MUST return every readable message and may skip unreadable ones.
	Scan(ctx context.Context, q Query) (Cursor, error)

	// Get returns the message at an offset, or ErrNotFound if there is no message or it
	// cannot be read.
	Get(ctx context.Context, at events.Offset) (Message, error)

	// Last returns the last message of one subject, or ErrNotFound.
	Last(ctx context.Context, subject string) (Message, error)

	// State returns the bounds of the log.
	State(ctx context.Context) (State, error)

	// Subjects counts the messages of each subject that matches the filter.
	Subjects(ctx context.Context, filter string) (map[string]uint64, error)

	// Close releases what the backend itself opened. No method is called later.
	Close() error
}

// firsts is a Backend that finds the first message of a subject without a scan.
type firsts interface {
	// First returns the first readable message of one subject, or ErrNotFound. It returns errors.ErrUnsupported if it
	// cannot tell without a scan.
	First(ctx context.Context, subject string) (Message, error)
}

// Publication is one append, to one subject or several.
type Publication struct {
	Writes []Write // one for each subject; at least one has messages

	// Segment is the segment of a Segmented backend when the append was decided; 0: any. If the backend writes to
	// another segment now, it MUST answer ErrBusy.
	Segment int
}

// Write holds the messages of a publication to one subject. Without messages it is a guard: the other writes are stored
// only if the subject is as expected.
type Write struct {
	Subject  string
	Messages []Outgoing
	Expect   Exactly
}

// Messages returns the number of messages of all writes.
func (p Publication) Messages() int {
	n := 0
	for _, w := range p.Writes {
		n += len(w.Messages)
	}
	return n
}

// pipelined is a Backend that sends publications one after the other without waiting for answers in between. Each has
// one message and expects nothing. They are stored in their order, by the rules of Publish, and each has its own
// outcome.
type pipelined interface {
	PublishEach(ctx context.Context, list []Publication) ([]Receipt, error)
}

// Segmented is a Backend that starts a new segment from time to time. After that, Publish does not recognise ids of the
// earlier segments.
type Segmented interface {
	// Segment returns a number that grows with each segment, and when the segment began; zero time: nothing was stored
	// before it.
	Segment() (n int, begun time.Time)
}

// indexed is a Backend with an index of the ids of old messages.
type indexed interface {
	// Indexed returns the offset up to which the index reaches.
	Indexed() events.Offset

	// MayHold lists the spans up to an offset, returned by an earlier Indexed, in which a subject may have a message
	// with an id. Every such message is in one of the spans.
	MayHold(subject, id string, upto events.Offset) []span
}

// span is a part of the log: After is exclusive, Upto inclusive.
type span struct {
	After, Upto events.Offset
}

// recoverable is a Backend whose last messages may be lost while it is in use: see [Log.Recover].
type recoverable interface {
	// Quiet makes publications under way return soon, with ErrUnknown unless their outcome is known, and runs work while
	// no publication is under way. publish is Publish for work.
	Quiet(work func(publish func(context.Context, Publication) (Receipt, error)) error) error
}

// Outgoing is one message to store.
type Outgoing struct {
	ID     string // for the server's deduplication
	Header []byte // fields of the header as NATS carries them: lines "name: value\r\n"
	Data   []byte
}

// Fields returns the header's fields by name.
func (o Outgoing) Fields() map[string][]string {
	fields := make(map[string][]string, 10)
	for field := range strings.SplitSeq(string(o.Header), "\r\n") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			fields[name] = append(fields[name], value)
		}
	}
	return fields
}

// headerSize returns the number of bytes that the header takes on the wire.
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
	Last      events.Offset // offset of the last message
	Duplicate bool          // it was stored before, at Last
}

// Message is a stored message. It belongs to the reader.
type Message struct {
	Subject string
	Header  map[string][]string
	Data    []byte
	Offset  events.Offset
	Time    time.Time // when it was stored

	wire string // the header as NATS carries it; Header is nil then
}

// State is the extent of a log. Both are 0 when it is empty.
type State struct {
	First, Last events.Offset

	Now time.Time // by the clock that dates messages; zero: unknown
}

// Query selects messages for a cursor.
type Query struct {
	Filter string        // NATS subject, with wildcards or without
	After  events.Offset // exclusive
	Upto   events.Offset // inclusive; not used when Live
	Want   int           // about how many messages the caller will take; 0: all
	Live   bool          // the cursor never ends: it waits for new messages

	// Match, unless nil, reports whether the reader needs the messages of a subject. Others may come without header and
	// data.
	Match func(subject string) bool
}

// Cursor returns messages in the order of their offsets. One goroutine uses it.
type Cursor interface {
	// Announced returns the number of messages after After that match the filter, by the backend's own index, at the
	// time of the first call or earlier. It MUST count unreadable messages if After is 0, and SHOULD otherwise. It may
	// count messages beyond Upto, up to a bound that depends on Upto alone.
	Announced(ctx context.Context) (uint64, error)

	// Next returns the next message, or io.EOF after the last one up to Upto. Any other error ends the cursor; the
	// messages that it did not return may still exist.
	Next(ctx context.Context) (Message, error)

	// Close releases the cursor's resources here and in the backend.
	Close()
}
