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

// TypeUnitAppended is the log's own eighteenth type, on subjects of KindUnit, which nobody
// else writes to: the redo record of an append to several subjects, with copies of all its
// events. No fold reads it.
const TypeUnitAppended = "tally.unit.appended.v1"

// Guard says what an append of a type must expect.
type Guard int

const (
	GuardAny   Guard = iota // commutes with everything: no expectation needed
	GuardSince              // a decision about what is there: an expectation is needed unless it is the subject's first event
)

// typeInfo is what the vocabulary knows of a type.
type typeInfo struct {
	guard   Guard
	subject string // "session" or "document"
	thread  bool   // moves with a rewind
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

// typePrefix begins the types of the vocabulary, and of no other one.
const typePrefix = "tally."

// checkForeign refuses a type that would be taken for one of the vocabulary: an event of it
// would be acknowledged and have no effect. In a log such an event stays readable.
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

// nearest returns the word that takes the fewest edits to make from another one.
func nearest(to string, words []string) string {
	return slices.MinFunc(words, func(a, b string) int { return edits(to, a) - edits(to, b) })
}

// edits is the number of bytes to insert, remove or replace that make b of a (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
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

// ThreadTypes lists the types whose events a rewind takes out of effect. A
// decision about the threads expects none of them since what it saw, and no
// rewind either.
func ThreadTypes() []string {
	return []string{TypeTurnAppended, TypeThreadReplaced, TypeThreadTruncated, TypeThreadPinned}
}

// IsKnown reports whether the type is one of the vocabulary's.
func IsKnown(typ string) bool { _, ok := vocabulary[typ]; return ok }

// IsThread reports whether events of the type move with a rewind. All others are
// ledger: in effect whatever was rewound.
func IsThread(typ string) bool { return vocabulary[typ].thread }

// GuardOf says what an append of the type must expect.
func GuardOf(typ string) Guard { return vocabulary[typ].guard }

// DataSchema returns the URI of the JSON Schema of a known type, "" for others.
func DataSchema(typ string) string {
	if !IsKnown(typ) || typ == TypeDocumentWritten {
		return ""
	}
	return "urn:tally:schema:" + strings.TrimPrefix(typ, "tally.")
}
