package projector

import (
	"context"
	"errors"
	"iter"

	"github.com/tallylog/tally/events"
)

// Effective yields the records of a subject that are in effect as of an offset, 0 for now, in order. For a session, see
// Session.InEffect; the records of a fork begin with the inherited ones, which have the subject that they were appended
// to. For a document, these are the valid records. A purge takes the revisions before it out of effect. If records cannot
// be read, a *HoleError comes last. If the subject has no record, Effective yields nothing.
func (l *Loader) Effective(ctx context.Context, sub events.Subject, at events.Offset, moves func(typ string) bool) iter.Seq2[Fact, error] {
	at = l.bounded(at)
	if !sub.IsSession() {
		return l.effectiveRevisions(ctx, sub, at)
	}
	return func(yield func(Fact, error) bool) {
		s, hole := l.Session(ctx, sub, at)
		switch err := Tolerate(hole); {
		case errors.Is(err, ErrNotFound):
			return
		case err != nil:
			yield(Fact{}, err)
			return
		}
		var kept blobs
		for rec, err := range l.Records(ctx, s) {
			if err == nil && !s.InEffect(rec, moves) {
				continue
			}
			if err == nil {
				rec, err = kept.resolve(ctx, l.Source, rec, l.maxValue())
			}
			if events.IsDamage(err) {
				continue
			}
			if !yield(Decode(rec), err) || err != nil {
				return
			}
		}
		if hole != nil {
			yield(Fact{}, hole)
		}
	}
}

// effectiveRevisions is Effective for a document. It reads the document twice: to find the last purge, and for the
// records.
func (l *Loader) effectiveRevisions(ctx context.Context, doc events.Subject, at events.Offset) iter.Seq2[Fact, error] {
	return func(yield func(Fact, error) bool) {
		var purged events.Offset
		for rec, err := range events.Readable(l.Source.Read(ctx, events.Range{Subject: doc, Upto: at})) {
			if err != nil {
				yield(Fact{}, err)
				return
			}
			if isPurge(rec) {
				purged = rec.Offset
			}
		}
		d := &Document{Subject: doc}
		var damaged []events.Offset
		for rec, err := range l.read(ctx, events.Range{Subject: doc, Upto: at}) {
			if damage, is := errors.AsType[*events.DamageError](err); is {
				damaged = append(damaged, damage.Offset)
				continue
			}
			if err != nil {
				yield(Fact{}, err)
				return
			}
			before := len(d.Rejected)
			d.Apply(rec)
			isRejected := len(d.Rejected) > before
			d.Revisions = d.Revisions[max(0, len(d.Revisions)-1):] // the last one decides about the next
			if isRejected || rec.Offset < purged && events.IsKnown(rec.Type) {
				continue
			}
			if !yield(Decode(rec), nil) {
				return
			}
		}
		if err := HoleOf(doc, damaged); err != nil {
			yield(Fact{}, err)
		}
	}
}

// Shifts reports whether a record may change which records before it are in effect, or may begin a session with
// inherited ones: a rewind, a fork, a purge of a document.
func Shifts(f Fact) bool {
	switch p := f.Payload.(type) {
	case *events.SessionRewound:
		return true
	case *events.SessionCreated:
		return p.Fork != nil
	}
	return isPurge(f.Record)
}

// IsCertain reports whether a record that does not shift is in effect, whatever the records before it are. shifted tells
// whether one of them Shifts. If IsCertain returns false, Effective decides.
func IsCertain(f Fact, shifted bool) bool {
	if f.Invalid != nil || f.Subject.IsSession() && nameOf(f.Record) != "" { // data that are named again have a bound
		return false
	}
	switch f.Type {
	case events.TypeDocumentWritten:
		_, err := events.ParseDocMeta(f.Extensions[events.ExtDoc])
		return err == nil
	case events.TypeDocumentDeleted:
		return false
	}
	_, hasBasis := f.Basis()
	return !CanBeRejected(f.Event) && !(hasBasis && shifted)
}
