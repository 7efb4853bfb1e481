package chat

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Version is the only version of snapshots.
const Version = 1

// Indent is the white space of one level in a snapshot file.
const Indent = "  "

// UnknownField is the field of a session with the members of its snapshot that this version does not know, as one
// object.
const UnknownField = "snapshotUnknown"

// Snapshot is a conversation at one moment.
type Snapshot struct {
	Messages []events.Raw
	Pinned   []bool        // as long as Messages
	Unknown  events.Fields // members of the file that this version does not know
}

// Of returns the snapshot of a session. If a turn is not a message, the error is a *MessageError; if its content was
// erased, an *events.ErasedError.
func Of(s *projector.Session) (Snapshot, error) {
	var c Snapshot
	for i, t := range s.Threads.Turns(events.MainThread) {
		if t.Erased != "" {
			return c, fmt.Errorf("load %s: %w", s.Subject.Name(), &events.ErasedError{Offset: t.Offset, Receipt: t.Erased})
		}
		if err := CheckMessage(t.Raw); err != nil {
			return c, &MessageError{Subject: s.Subject, Offset: t.Offset, Index: i, Err: Located(t.Raw, err)}
		}
		c.Messages = append(c.Messages, t.Raw)
		c.Pinned = append(c.Pinned, t.Pinned)
	}
	if raw, ok := s.Ledger.Fields.Get(UnknownField); ok {
		var err error
		if c.Unknown, err = rawjson.Object(raw); err != nil {
			return c, fmt.Errorf("load %s: %s: %v", s.Subject.Name(), UnknownField, err)
		}
	}
	return c, nil
}

// Parse parses a snapshot. An error is a *DecodeError.
func Parse(data []byte) (Snapshot, error) {
	s, err := read(data, func(raw events.Raw) (events.Raw, error) { return raw, CheckMessage(raw) })
	if err != nil {
		return Snapshot{}, Located(data, err)
	}
	return s, nil
}

// ParseAny parses a snapshot whose messages may have the shapes of older writers, and returns them in today's. old
// reports whether any had an older shape.
func ParseAny(data []byte) (s Snapshot, old bool, err error) {
	s, err = read(data, func(raw events.Raw) (events.Raw, error) {
		modern, changed, err := Modern(raw)
		old = old || changed
		return modern, err
	})
	if err != nil {
		return Snapshot{}, false, Located(data, err)
	}
	return s, old, nil
}

// read parses the members, and each message by a function. The result does not alias data. It omits the white space
// between tokens. It checks the version first, because the other members may differ in another version.
func read(data []byte, each func(events.Raw) (events.Raw, error)) (Snapshot, error) {
	var s Snapshot
	members, err := rawjson.Object(data)
	if err != nil {
		return s, err
	}
	known := make(map[string]events.Raw)
	for _, m := range members {
		switch m.Name {
		case "version", "messages", "pinned":
			known[m.Name] = m.Value
		default:
			s.Unknown = append(s.Unknown, events.Field{Name: m.Name, Value: rawjson.AppendCompact(nil, m.Value)})
		}
	}
	for _, name := range []string{"version", "messages", "pinned"} {
		if known[name] == nil {
			return s, &fieldError{name, errMissing}
		}
	}
	if err := checkVersion(known["version"]); err != nil {
		return s, err
	}
	if s.Messages, err = rawjson.Array(known["messages"]); err != nil {
		return s, &fieldError{"messages", reasonOf(err)}
	}
	for i, m := range s.Messages {
		if m, err = each(m); err != nil {
			return s, within("messages["+strconv.Itoa(i)+"]", err)
		}
		s.Messages[i] = rawjson.AppendCompact(nil, m)
	}
	if err := rawjson.Unmarshal(known["pinned"], &s.Pinned); err != nil {
		return s, within("pinned", reasonOf(err))
	}
	return s, CheckLengths(len(s.Messages), len(s.Pinned))
}

func checkVersion(raw events.Raw) error {
	n, err := strconv.ParseUint(string(raw), 10, 32)
	switch {
	case err != nil:
		return &fieldError{"version", fmt.Errorf("%.40s is not a version", raw)}
	case n != Version:
		return &VersionError{uint32(n)}
	}
	return nil
}

// CheckLengths checks that the mask has the length of the list of messages.
func CheckLengths(messages, pinned int) error {
	if messages != pinned {
		return &LengthError{messages, pinned}
	}
	return nil
}

// Append appends a snapshot as JSON, without white space between its tokens, except inside of messages.
func Append(dst []byte, s Snapshot) []byte {
	return spelled(dst, struct {
		Version  int           `json:"version"`
		Messages []events.Raw  `json:"messages"`
		Pinned   []bool        `json:"pinned"`
		Unknown  events.Fields `json:",unknown"`
	}{Version, append([]events.Raw{}, s.Messages...), append([]bool{}, s.Pinned...), s.Unknown})
}

// AppendPretty appends a snapshot in the format of the original's files.
func AppendPretty(dst []byte, s Snapshot) []byte {
	return rawjson.AppendIndent(dst, Append(nil, s), Indent)
}

// Equal reports whether two snapshots have the same tokens, with any white space between them.
func Equal(a, b Snapshot) bool {
	return slices.Equal(a.Pinned, b.Pinned) && slices.EqualFunc(a.Messages, b.Messages, equalRaw) && EqualUnknown(a.Unknown, b.Unknown)
}

// EqualUnknown compares the members that this version does not know.
func EqualUnknown(a, b events.Fields) bool {
	return slices.EqualFunc(a, b, func(x, y events.Field) bool { return x.Name == y.Name && equalRaw(x.Value, y.Value) })
}

// equalRaw compares tokens. Most messages of a growing conversation share their bytes in memory.
func equalRaw(a, b events.Raw) bool {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || bytes.Equal(a, b)) {
		return true
	}
	return rawjson.Equal(a, b)
}

var errMissing = errors.New("missing")

// UnknownMember returns the unknown members as the field of a session. If there are none, its value is null, which
// removes the field.
func UnknownMember(unknown events.Fields) events.Field {
	f := events.Field{Name: UnknownField, Value: events.Raw("null")}
	if len(unknown) > 0 {
		f.Value = spelled(nil, unknown)
	}
	return f
}
