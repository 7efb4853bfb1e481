package events

import (
	"slices"
	"strings"
)

// The vocabulary: seventeen types, past tense, the major version inside. A new
// major version comes with an upcaster; every event ever written stays readable.
const (
	TypeSessionCreated    = "tally.session.created.v1"
	TypeSessionUpdated    = "tally.session.updated.v1"
	TypeTurnAppended      = "tally.turn.appended.v1"
	TypeThreadReplaced    = "tally.thread.replaced.v1"
	TypeThreadTruncated   = "tally.thread.truncated.v1"
	TypeThreadPinned      = "tally.thread.pinned.v1"
	TypeSessionRewound    = "tally.session.rewound.v1"
	TypeRunCreated        = "tally.run.created.v1"
	TypeRunStarted        = "tally.run.started.v1"
	TypeRunProgressed     = "tally.run.progressed.v1"
	TypeRunFinished       = "tally.run.finished.v1"
	TypeRunAnnotated      = "tally.run.annotated.v1"
	TypeCheckpointSaved   = "tally.checkpoint.saved.v1"
	TypeCheckpointCleared = "tally.checkpoint.cleared.v1"
	TypeCostAccrued       = "tally.cost.accrued.v1"
	TypeDocumentWritten   = "tally.document.written.v1"
	TypeDocumentDeleted   = "tally.document.deleted.v1"
)

// TypeUnitAppended is the log's own eighteenth type, on subjects of KindUnit, to which only the log writes: the redo
// record of an append to several subjects, with copies of all its events. No fold reads it.
const TypeUnitAppended = "tally.unit.appended.v1"

// Guard is the expectation that an append of a type needs.
type Guard int

const (
	GuardAny   Guard = iota // commutes with everything: no expectation needed
	GuardSince              // a decision on the present state: needs an expectation unless it is the subject's first event
)

// typeInfo describes a type of the vocabulary.
type typeInfo struct {
	guard   Guard
	subject string // "session" or "document"
	thread  bool   // a rewind affects it
	new     func() Payload
}

var vocabulary = map[string]typeInfo{
	TypeSessionCreated:    {guard: GuardSince, subject: "session", new: func() Payload { return new(SessionCreated) }},
	TypeSessionUpdated:    {guard: GuardSince, subject: "session", new: func() Payload { return new(SessionUpdated) }},
	TypeTurnAppended:      {subject: "session", thread: true, new: func() Payload { return new(TurnAppended) }},
	TypeThreadReplaced:    {guard: GuardSince, subject: "session", thread: true, new: func() Payload { return new(ThreadReplaced) }},
	TypeThreadTruncated:   {guard: GuardSince, subject: "session", thread: true, new: func() Payload { return new(ThreadTruncated) }},
	TypeThreadPinned:      {guard: GuardSince, subject: "session", thread: true, new: func() Payload { return new(ThreadPinned) }},
	TypeSessionRewound:    {guard: GuardSince, subject: "session", new: func() Payload { return new(SessionRewound) }},
	TypeRunCreated:        {subject: "session", new: func() Payload { return new(RunCreated) }},
	TypeRunStarted:        {subject: "session", new: func() Payload { return new(RunStarted) }},
	TypeRunProgressed:     {subject: "session", new: func() Payload { return new(RunProgressed) }},
	TypeRunFinished:       {subject: "session", new: func() Payload { return new(RunFinished) }},
	TypeRunAnnotated:      {guard: GuardSince, subject: "session", new: func() Payload { return new(RunAnnotated) }},
	TypeCheckpointSaved:   {subject: "session", new: func() Payload { return new(CheckpointSaved) }},
	TypeCheckpointCleared: {guard: GuardSince, subject: "session", new: func() Payload { return new(CheckpointCleared) }},
	TypeCostAccrued:       {subject: "session", new: func() Payload { return new(CostAccrued) }},
	TypeDocumentWritten:   {subject: "document"},
	TypeDocumentDeleted:   {guard: GuardSince, subject: "document", new: func() Payload { return new(DocumentDeleted) }},
}

// Types lists the vocabulary.
func Types() []string {
	return []string{
		TypeSessionCreated, TypeSessionUpdated, TypeTurnAppended, TypeThreadReplaced, TypeThreadTruncated, TypeThreadPinned,
		TypeSessionRewound, TypeRunCreated, TypeRunStarted, TypeRunProgressed, TypeRunFinished, TypeRunAnnotated,
		TypeCheckpointSaved, TypeCheckpointCleared, TypeCostAccrued, TypeDocumentWritten, TypeDocumentDeleted,
	}
}

// typePrefix is the prefix of the types of the vocabulary. No other type may have it.
const typePrefix = "tally."

// checkForeign refuses an unknown type with the vocabulary's prefix: the log would acknowledge it, and it would have no
// effect. In a log such an event stays readable.
func checkForeign(typ string) error {
	switch {
	case !strings.HasPrefix(typ, typePrefix):
		return nil
	case typ == TypeUnitAppended:
		return invalid("type", "%s is written by the log alone", typ)
	}
	return invalid("type", "%q is not a type that this version of tally knows; the nearest one is %s. Types of your own do not begin with %s",
		typ, nearest(typ, Types()), typePrefix)
}

// nearest returns the word with the fewest edits to another one.
func nearest(to string, words []string) string {
	return slices.MinFunc(words, func(a, b string) int { return edits(to, a) - edits(to, b) })
}

// edits returns the number of bytes to insert, remove or replace to turn a into b (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one column to the left
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// ThreadTypes lists the types whose events a rewind takes out of effect. A decision on the threads expects that no
// event of these types, and no rewind, came since its basis.
func ThreadTypes() []string {
	return []string{TypeTurnAppended, TypeThreadReplaced, TypeThreadTruncated, TypeThreadPinned}
}

// IsKnown reports whether the type is one of the vocabulary's.
func IsKnown(typ string) bool { _, ok := vocabulary[typ]; return ok }

// IsThread reports whether a rewind affects events of the type. All other types are ledger: in effect after any rewind.
func IsThread(typ string) bool { return vocabulary[typ].thread }

// GuardOf returns the expectation that an append of the type needs.
func GuardOf(typ string) Guard { return vocabulary[typ].guard }

// DataSchema returns the URI of the JSON Schema of a known type, "" for others.
func DataSchema(typ string) string {
	if !IsKnown(typ) || typ == TypeDocumentWritten {
		return ""
	}
	return "urn:tally:schema:" + strings.TrimPrefix(typ, "tally.")
}
