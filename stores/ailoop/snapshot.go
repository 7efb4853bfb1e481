package ailoop

import (
	"context"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// HistoryStore keeps the history of one conversation: the snapshot that was saved last.
//
// Callers rely on these rules: Load returns the snapshot of the last Save; if there was none, found is false, without
// an error. A store is for one conversation (or run) and one writer. Several conversations need several stores, and
// stores do not order their writes. The three implementations here are also safe for concurrent use.
//
// Implementers return their own errors; callers receive them unchanged, so that errors.As finds them. A store must
// not share mutable data with its callers; a Snapshot is immutable.
type HistoryStore interface {
	// Save replaces the previous snapshot.
	Save(ctx context.Context, s Snapshot) error
	// Load returns the snapshot that was saved last.
	Load(ctx context.Context) (s Snapshot, found bool, err error)
}

var (
	_ HistoryStore = (*History)(nil)
	_ HistoryStore = (*InMemory)(nil)
	_ HistoryStore = (*File)(nil)
)

// SnapshotVersion is the only version of snapshots.
const SnapshotVersion = chat.Version

// Errors of snapshots.
type (
	// UnsupportedVersionError refuses a snapshot of another version; Have is its version.
	UnsupportedVersionError = chat.VersionError

	// LengthMismatchError refuses a snapshot whose mask of pins does not have the length of its list of messages. It
	// has both lengths.
	LengthMismatchError = chat.LengthError

	// SnapshotDecodeError describes an error in a snapshot's JSON and its position, by Offset, Line and Column, or by
	// Field. It wraps one of the other two, or a plain reason.
	SnapshotDecodeError = chat.DecodeError

	// MessageError reports that a turn of a history is not a message. Another program appended it. It wraps a
	// *SnapshotDecodeError.
	MessageError = chat.MessageError
)

// Snapshot is a conversation at one moment: its messages and their pins. A compaction must keep a pinned message. A
// Snapshot is immutable. The zero value is a conversation without messages.
type Snapshot struct {
	messages []Message
	pinned   []bool
	unknown  events.Fields
}

// NewSnapshot returns a snapshot of messages and their pins. If the two have different lengths, the error is a
// *LengthMismatchError.
func NewSnapshot(messages []Message, pinned []bool) (Snapshot, error) {
	if err := chat.CheckLengths(len(messages), len(pinned)); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{messages: slices.Clone(messages), pinned: slices.Clone(pinned)}, nil
}

// ParseSnapshot parses a snapshot from JSON, in the format of MarshalJSON or the original's files. An error is a
// *SnapshotDecodeError. Unknown members are kept.
func ParseSnapshot(data []byte) (Snapshot, error) {
	raw, err := chat.Parse(data)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(raw), nil
}

// Version returns the version of the snapshot's format.
func (s Snapshot) Version() uint32 { return SnapshotVersion }

// Len returns the number of messages.
func (s Snapshot) Len() int { return len(s.messages) }

// Message returns a message by its index from 0.
func (s Snapshot) Message(i int) Message { return s.messages[i] }

// IsPinned reports whether a message is pinned.
func (s Snapshot) IsPinned(i int) bool { return s.pinned[i] }

// Messages returns the messages, in order.
func (s Snapshot) Messages() []Message { return slices.Clone(s.messages) }

// Pinned returns the mask of pins, which has the length of Messages.
func (s Snapshot) Pinned() []bool { return slices.Clone(s.pinned) }

// Append returns the snapshot with messages added at its end, without pins.
func (s Snapshot) Append(messages ...Message) Snapshot {
	s.messages = append(slices.Clip(s.messages), messages...)
	s.pinned = append(slices.Clip(s.pinned), make([]bool, len(messages))...)
	return s
}

// Pin returns the snapshot with a message pinned, or not pinned. It panics if the index is out of range.
func (s Snapshot) Pin(i int, pinned bool) Snapshot {
	s.pinned = slices.Clone(s.pinned)
	s.pinned[i] = pinned
	return s
}

// PinWithToolResult is Pin for a tool's call and its result. If the message has one of them, PinWithToolResult also
// pins the messages with the other.
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

// Equal reports whether both have the same messages, pins and unknown members. It compares messages by their tokens.
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

// raw returns the snapshot as bytes, which callers must not change.
func (s Snapshot) raw() chat.Snapshot {
	r := chat.Snapshot{Messages: make([]events.Raw, len(s.messages)), Pinned: s.pinned, Unknown: s.unknown}
	for i, m := range s.messages {
		r.Messages[i] = m.bytes()
	}
	return r
}

// snapshotOf returns a snapshot of valid bytes that no caller changes.
func snapshotOf(r chat.Snapshot) Snapshot {
	s := Snapshot{messages: make([]Message, len(r.Messages)), pinned: r.Pinned, unknown: r.Unknown}
	for i, raw := range r.Messages {
		s.messages[i] = Message{raw}
	}
	return s
}

// InMemory keeps a history in memory until the program ends. The zero value works. Its methods never return an error.
// It is safe for concurrent use; see [HistoryStore] for its purpose.
type InMemory struct {
	mu    sync.Mutex // guards the fields below
	last  Snapshot
	saved bool
}

// Save implements HistoryStore. The error is nil.
func (st *InMemory) Save(_ context.Context, s Snapshot) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.last, st.saved = s, true
	return nil
}

// Load implements HistoryStore. The error is nil.
func (st *InMemory) Load(context.Context) (s Snapshot, found bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.last, st.saved, nil
}
