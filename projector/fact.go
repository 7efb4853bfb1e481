package projector

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// Fact is a record with its decoded payload. All folds share it.
type Fact struct {
	events.Record
	Payload events.Payload // nil for unknown types and documents
	Invalid error          // why a payload of a known type has no effect: another program published it without Append
}

// Decode decodes the payload of a record.
func Decode(rec events.Record) Fact {
	f := Fact{Record: rec}
	if f.Invalid = misplaced(rec.Event); f.Invalid == nil {
		f.Payload, f.Invalid = events.Decode(rec.Type, rec.Data)
	}
	return f
}

// misplaced refuses document events in sessions and session events in documents.
func misplaced(e events.Event) error {
	if !events.IsKnown(e.Type) {
		return nil
	}
	document := e.Type == events.TypeDocumentWritten || e.Type == events.TypeDocumentDeleted
	if document == e.Subject.IsSession() {
		return &events.InvalidError{Field: "subject", Reason: e.Type + " cannot be an event of " + e.Subject.String()}
	}
	return nil
}

// Happened returns the time of a record by its producer's clock. If the producer sent no time, it is the log's time.
// All timestamps have the same format, so their texts compare in order of time.
func (f Fact) Happened() events.Timestamp {
	return events.TimestampOf(cmp.Or(f.Time, f.Recorded))
}

// isTimed reports whether a record has a time of its own. If a line of an agent's file has no time, its record has the
// time of the lines around it, or of its import. Records derived from such a line do the same.
func (f Fact) isTimed() bool {
	switch {
	case strings.HasPrefix(f.Source, events.DerivedSource):
		return f.Type != events.TypeSessionCreated && f.Type != events.TypeSessionUpdated
	case !events.IsAgentLine(f.Event):
		return true
	}
	p, ok := f.Payload.(*events.TurnAppended)
	return !ok || slices.ContainsFunc(p.Entries, func(e events.Entry) bool { return e.Timestamp != "" })
}

// Latest returns the latest time of the records up to this one. before is the latest time of the records before it, and
// isGuess whether that was a guess. Times of records without a time of their own count only if no record has its own
// time.
func (f Fact) Latest(before events.Timestamp, isGuess bool) (at events.Timestamp, isGuessed bool) {
	switch isTimed := f.isTimed(); {
	case before == "" || isGuess && isTimed:
		return f.Happened(), !isTimed
	case isGuess == !isTimed:
		return max(before, f.Happened()), isGuess // same format, so the texts compare in order of time
	}
	return before, isGuess
}

// Impossible returns the fact, with Invalid set if it cannot have an effect at its position. It decides only what
// follows from the session's kind there and two offsets: the effective session.created, and the last record before this
// one. Either is 0 if it does not exist.
func (f Fact) Impossible(kind string, created, before events.Offset) Fact {
	if f.Invalid != nil {
		return f
	}
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		switch {
		case created != 0:
			f.Invalid = fmt.Errorf("the session was created at %v already", created)
		case p.Fork != nil && before != 0:
			f.Invalid = errors.New("a fork must be the first event of its session")
		case p.Fork != nil && p.Fork.Offset >= f.Offset:
			f.Invalid = fmt.Errorf("a fork at %v, which is not below itself", p.Fork.Offset)
		}
	case *events.SessionRewound:
		if !events.CanRewind(kind) {
			f.Invalid = fmt.Errorf("a session of kind %s is not rewound", kind)
		}
	case *events.CheckpointSaved:
		if p.At >= f.Offset {
			f.Invalid = fmt.Errorf("a checkpoint at %v, which is not below itself", p.At)
		}
	}
	return f
}

// CanBeRejected reports whether a valid event may be rejected at its position. The session then lists it in its ledger.
// Data by reference must be resolved first to decide it. CanBeRejected ignores the size bound of data that are named again,
// because an append refuses data above it.
func CanBeRejected(e events.Event) bool {
	if len(e.Data) == 0 && nameOf(events.Record{Event: e}) != "" {
		return true
	}
	switch e.Type {
	case events.TypeTurnAppended:
		return bytes.Contains(e.Data, []byte(`"pins"`))
	case events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished:
		return bytes.Contains(e.Data, []byte(`"lists"`))
	case events.TypeThreadReplaced, events.TypeThreadTruncated, events.TypeThreadPinned,
		events.TypeSessionRewound, events.TypeSessionCreated, events.TypeCheckpointSaved:
		return true
	}
	return false
}

// ForkOf returns the fork that the first record of a timeline declares. It returns nil if the fact is not the first
// record, declares no fork, or declares an impossible one.
func (f Fact) ForkOf(t *Timeline) *events.Fork {
	p, ok := f.Payload.(*events.SessionCreated)
	if !ok || p.Fork == nil || t.Len() > 0 || p.Fork.Offset >= f.Offset {
		return nil
	}
	return p.Fork
}

// Brings returns the turns that a record adds to threads, live or not.
func (f Fact) Brings() Threads {
	brought := make(Threads)
	switch p := f.Payload.(type) {
	case *events.TurnAppended:
		enter(f.Record, p.Entries, func(name string) *[]Turn { return &brought.thread(name).Turns })
	case *events.ThreadReplaced:
		for name, r := range p.Threads {
			brought.thread(name).Turns = newItems(f.Record, r)
		}
	}
	return brought
}
