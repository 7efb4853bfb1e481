package log

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// Expect is what the writer of an append believes about the subject. Values are
// comparable; the zero Expect is Any.
type Expect struct {
	kind  expectKind
	at    events.Offset
	types string // of Since, sorted, one per line
}

type expectKind uint8

const (
	expectAny expectKind = iota
	expectAt
	expectSince
)

// Any expects nothing: for events that commute with everything.
var Any Expect

// At expects that the subject's last record is at this offset. At(0) expects that the subject has no event yet.
func At(o events.Offset) Expect { return Expect{kind: expectAt, at: o} }

// Since expects that no event of these types was appended to the subject after
// the offset. Other events do not matter. Without types it expects nothing.
func Since(o events.Offset, types ...string) Expect {
	sorted := slices.Compact(slices.Sorted(slices.Values(types)))
	sorted = slices.DeleteFunc(sorted, func(t string) bool { return strings.Contains(t, "\n") }) // no event type has a line feed
	return Expect{kind: expectSince, at: o, types: strings.Join(sorted, "\n")}
}

// String returns any, @7, or since @7.
func (e Expect) String() string {
	switch e.kind {
	case expectAt:
		return e.at.String()
	case expectSince:
		return "since " + e.at.String()
	}
	return "any"
}

// Excludes reports whether an event of this type, appended after the writer's last read, would be a conflict.
func (e Expect) Excludes(typ string) bool {
	return e.kind == expectAt || e.kind == expectSince && e.concerns(typ)
}

// concerns reports whether Since named this type.
func (e Expect) concerns(typ string) bool {
	return typ != "" && slices.Contains(e.list(), typ)
}

// list returns the types that Since named.
func (e Expect) list() []string {
	if e.types == "" {
		return nil
	}
	return strings.Split(e.types, "\n")
}
