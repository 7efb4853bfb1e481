package ailoop

import (
	"context"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// HistoryStore keeps the history of one conversation: the snapshot that was saved
// last.
//
// Callers rely on this: Load returns what the last Save was given, and found is
// false, without an error, if there was none. One store is for one conversation
// (or run) and one writer; several conversations take several stores, and no
// store looks after the order of writes to another. The three implementations
// here are safe for concurrent use all the same.
//
// Implementers return errors of their own; they reach the caller as they are, so
// that errors.As finds them. A store must not keep what it was given, or give out
// what it keeps, in a form that somebody can change; a Snapshot
// cannot be changed.
type HistoryStore interface {
	// Save puts a snapshot in the place of the one before.
	Save(ctx context.Context, s Snapshot) error
	// Load returns the snapshot that was saved last.
	Load(ctx context.Context) (s Snapshot, found bool, err error)
}

var (
	_ HistoryStore = (*History)(nil)
	_ HistoryStore = (*InMemory)(nil)
	_ HistoryStore = (*File)(nil)
)

// SnapshotVersion is the one version of snapshots that there is.
const SnapshotVersion = chat.Version

// Errors of snapshots.
type (
	// UnsupportedVersionError refuses a snapshot of another version; Have is the
	// one that it says.
	UnsupportedVersionError = chat.VersionError

	// LengthMismatchError refuses a snapshot whose mask of pins has another length
	// than its list of messages; it has both.
	LengthMismatchError = chat.LengthError

	// SnapshotDecodeError says what of a snapshot's JSON is wrong, and where: by
	// Offset, Line and Column, or by the Field. It wraps one of the other two, or a
	// plain reason.
	SnapshotDecodeError = chat.DecodeError

	// MessageError says that a turn of a history is not a message: somebody appended it
	// by other means. It wraps a *SnapshotDecodeError.
	MessageError = chat.MessageError
)

// Snapshot is a conversation at one moment: its messages and, for
// each, whether it is pinned: whether a compaction must keep it. It cannot be
// changed, only be made anew. The zero value is the snapshot of a conversation in
// which nothing was said.
type Snapshot struct {
	messages []Message
	pinned   []bool
	unknown  events.Fields
}

// NewSnapshot makes a snapshot of messages and their pins. As many of
// the one as of the other; if not, the error is a *LengthMismatchError.
func NewSnapshot(messages []Message, pinned []bool) (Snapshot, error) {
	if err := chat.CheckLengths(len(messages), len(pinned)); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{messages: slices.Clone(messages), pinned: slices.Clone(pinned)}, nil
}

// ParseSnapshot reads a snapshot from JSON, as MarshalJSON and the
// original's files have it. What is wrong is a *SnapshotDecodeError. Members that
// are not of this version are kept.
func ParseSnapshot(data []byte) (Snapshot, error) {
	raw, err := chat.Parse(data)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(raw), nil
}

// Version is the version of the snapshot's form.
func (s Snapshot) Version() uint32 { return SnapshotVersion }

// Len is the number of messages.
func (s Snapshot) Len() int { return len(s.messages) }

// Message returns a message by its index from 0.
func (s Snapshot) Message(i int) Message { return s.messages[i] }

// IsPinned reports whether a message is pinned.
func (s Snapshot) IsPinned(i int) bool { return s.pinned[i] }

// Messages returns the messages, in order.
func (s Snapshot) Messages() []Message { return slices.Clone(s.messages) }

// Pinned returns the mask of pins, as long as Messages.
func (s Snapshot) Pinned() []bool { return slices.Clone(s.pinned) }

// Append returns the snapshot with messages added at its end, not pinned.
func (s Snapshot) Append(messages ...Message) Snapshot {
	s.messages = append(slices.Clip(s.messages), messages...)
	s.pinned = append(slices.Clip(s.pinned), make([]bool, len(messages))...)
	return s
}

// Pin returns the snapshot with a message pinned, or not pinned. It panics if there is no
// such message, which is a mistake of the program.
func (s Snapshot) Pin(i int, pinned bool) Snapshot {
	s.pinned = slices.Clone(s.pinned)
	s.pinned[i] = pinned
	return s
}

// PinWithToolResult is Pin for a tool's call and its result: whichever of the two
// the message has, the messages with the other are pinned along with it, as the
// one is worth nothing without the other.
func (s Snapshot) PinWithToolResult(i int) Snapshot {
	s = s.Pin(i, true)
	calls := s.messages[i].toolIDs()
	for k, m := range s.messages {
		for id := range m.toolIDs() {
			s.pinned[k] = s.pinned[k] || calls[id]
		}
	}
	return s
}

// Equal reports whether both have the same messages, pins and members that are
// not of this version. Messages are compared by their tokens.
func (s Snapshot) Equal(o Snapshot) bool { return chat.Equal(s.raw(), o.raw()) }

// MarshalJSON returns the snapshot as compact JSON: version, messages, pinned.
func (s Snapshot) MarshalJSON() ([]byte, error) { return chat.Append(nil, s.raw()), nil }

// UnmarshalJSON is ParseSnapshot.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	read, err := ParseSnapshot(data)
	if err == nil {
		*s = read
	}
	return err
}

// raw returns the snapshot as bytes, which nobody may change.
func (s Snapshot) raw() chat.Snapshot {
	r := chat.Snapshot{Messages: make([]events.Raw, len(s.messages)), Pinned: s.pinned, Unknown: s.unknown}
	for i, m := range s.messages {
		r.Messages[i] = m.bytes()
	}
	return r
}

// snapshotOf makes a snapshot of bytes that are known to be one and that nobody
// changes.
func snapshotOf(r chat.Snapshot) Snapshot {
	s := Snapshot{messages: make([]Message, len(r.Messages)), pinned: r.Pinned, unknown: r.Unknown}
	for i, raw := range r.Messages {
		s.messages[i] = Message{raw}
	}
	return s
}

// InMemory keeps a history in memory, for as long as the program
// runs. The zero value works. Its methods return no error, ever. It is safe for
// concurrent use; see [HistoryStore] for what it is meant for.
type InMemory struct {
	mu    sync.Mutex // guards what follows
	last  Snapshot
	saved bool
}

// Save implements HistoryStore; the error is nil.
func (st *InMemory) Save(_ context.Context, s Snapshot) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.last, st.saved = s, true
	return nil
}

// Load implements HistoryStore; the error is nil.
func (st *InMemory) Load(context.Context) (s Snapshot, found bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.last, st.saved, nil
}
