package projector

import "github.com/tallylog/tally/events"

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
