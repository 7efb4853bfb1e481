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

// Fact is a record with its payload decoded, once for all folds.
type Fact struct {
	events.Record
	Payload events.Payload // nil for unknown types and documents
	Invalid error          // why a known type's payload has no effect: somebody published around Append
}

// Decode reads the payload of a record.
func Decode(rec events.Record) Fact {
	f := Fact{Record: rec}
	if f.Invalid = misplaced(rec.Event); f.Invalid == nil {
		f.Payload, f.Invalid = events.Decode(rec.Type, rec.Data)
	}
	return f
}

// misplaced refuses what belongs to the other sort of subject.
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

// Happened is the time of a record by its producer's clock, or by the log's if the
// producer did not say. All are spelled alike, so they compare as text.
func (f Fact) Happened() events.Timestamp {
	return events.TimestampOf(cmp.Or(f.Time, f.Recorded))
}

// isTimed reports whether a record has a time of its own. The line of an agent's file that
// says none has that of the lines around it, or that of its import if there are none; so has
// what follows from such a line.
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

// Latest is the latest time of records up to this one, given that of those before it, and
// whether it is a guess: the times of records that have none of their own count only where no
// record has.
func (f Fact) Latest(before events.Timestamp, isGuess bool) (at events.Timestamp, isGuessed bool) {
	switch isTimed := f.isTimed(); {
	case before == "" || isGuess && isTimed:
		return f.Happened(), !isTimed
	case isGuess == !isTimed:
		return max(before, f.Happened()), isGuess // spelled alike, so they compare as text
	}
	return before, isGuess
}

// Impossible returns the fact with Invalid set if it can have no effect at its
// place, as far as that follows from the kind that its session has there, and from two
// of its offsets: that of the session.created that counts, and the last one before it; 0
// if there is none.
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

// CanBeVoid reports whether a valid event may have no effect at its place, which its
// session then says (Ledger.Void). Of data by reference that is known only once they are put
// in place. The bound of data that are named again is left out: an append refuses what is
// beyond it.
func CanBeVoid(e events.Event) bool {
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

// ForkOf returns the fork that the first record of a timeline declares, nil if the
// fact is not that, or declares none or an impossible one.
func (f Fact) ForkOf(t *Timeline) *events.Fork {
	p, ok := f.Payload.(*events.SessionCreated)
	if !ok || p.Fork == nil || t.Len() > 0 || p.Fork.Offset >= f.Offset {
		return nil
	}
	return p.Fork
}

// Brings returns the turns that a record brings to threads, whatever becomes of them.
func (f Fact) Brings() Threads {
	brought := make(Threads)
	switch p := f.Payload.(type) {
	case *events.TurnAppended:
		enter(f.Offset, p.Entries, func(name string) *[]Turn { return &brought.thread(name).Turns })
	case *events.ThreadReplaced:
		for name, r := range p.Threads {
			brought.thread(name).Turns = newItems(f.Offset, r)
		}
	}
	return brought
}
