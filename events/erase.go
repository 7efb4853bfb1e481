package events

import (
	"bytes"
	"cmp"
	"maps"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// maxReceipt bounds the id of a receipt, in bytes. An event with any content has room for the attribute with such an id,
// because an erased event has neither Content-Type nor ce-subject.
const maxReceipt = 6

// Erased returns the id of the receipt of the erasure that removed the event's content, or "".
func (e Event) Erased() string { return e.Extensions[ExtErased] }

// HasContent reports whether Erase would remove anything from an event that was not erased. It does not look into the
// data.
func (e Event) HasContent() bool { return !e.Equal(e.frame()) }

// Erase returns the event without its content. What remains is what readers count, order and locate by (docs/wire.md,
// Erased events): it follows from the event alone, and on the wire it is not longer than the event. receipt is the id of
// the document that says who erased the event and why: 1 to 6 of [a-z0-9]. An event that has no content, or has lost it
// already, is returned as it is.
//
// If the data are kept by reference, the caller puts them in place first. The error is an *InvalidError if they are not
// in place, or if their structure needs more bytes than the stored event has.
func (e Event) Erase(receipt string) (Event, error) {
	if err := checkReceipt(receipt); err != nil {
		return e, err
	}
	if e.Type == TypeUnitAppended {
		return e.EraseCopies(receipt, func(c Event) (Event, error) { return c.Erase(receipt) })
	}
	if e.Equal(e.frame()) {
		return e, nil
	}
	var data []byte
	if structures[e.Type] != nil {
		if e.Extensions[ExtDataRef] != "" && len(e.Data) == 0 {
			return e, invalid(ExtDataRef, "the data of %q are kept by reference: they must be in place", e.ID)
		}
		data = e.structure()
	}
	if was := e.Erased(); was != "" { // unless only some of its turns are, it is what remains
		if left := e.frame().WithExtension(ExtErased, was); bytes.Equal(e.Data, data) && maps.Equal(e.Extensions, left.Extensions) {
			return e, nil
		}
	}
	return e.erased(receipt, data)
}

// checkReceipt checks the id of a receipt.
func checkReceipt(id string) error {
	if len(id) > maxReceipt || id == "" || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return invalid(ExtErased, "%q: want 1 to %d of [a-z0-9]", id, maxReceipt)
	}
	return nil
}

// EraseCopies returns a redo record (TypeUnitAppended) with other copies of its events, which have at most the length of
// the original ones in the form of redo records. erase returns an erased event for a copy, or the copy itself. If it
// returns all copies themselves, EraseCopies returns the record as it is.
func (e Event) EraseCopies(receipt string, erase func(Event) (Event, error)) (Event, error) {
	unit, copies, err := e.redo()
	if err != nil {
		return e, err
	}
	isChanged := false
	for i, c := range copies {
		erased, err := erase(c)
		if err != nil {
			return e, err
		}
		if erased.Equal(c) {
			continue
		}
		isChanged = true
		if unit.Events[i].Event, err = erased.copied(); err != nil {
			return e, err
		}
	}
	if !isChanged {
		return e, nil
	}
	data, err := rawjson.Marshal(unit)
	if err != nil {
		return e, dataError("data", err)
	}
	return e.erased(cmp.Or(e.Erased(), receipt), data)
}

// copied returns an erased event for a redo record. It lacks the members that follow from others, which are the room for
// the receipt.
func (e Event) copied() (Raw, error) {
	text, err := AppendJSON(nil, e)
	for _, name := range []string{"subject", "dataschema"} {
		if err == nil {
			text, err = rawjson.DeleteMember(text, name)
		}
	}
	return text, err
}

// frame returns the event without data and without the attributes that are content.
func (e Event) frame() Event {
	f := Event{ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, Time: e.Time, Extensions: make(map[string]string)}
	for _, name := range []string{ExtLine, ExtLineOwner} {
		if value, ok := e.Extensions[name]; ok {
			f.Extensions[name] = value
		}
	}
	if at, ok := e.Basis(); ok && at.Padded() == e.Extensions[ExtBasis] {
		f.Extensions[ExtBasis] = at.Padded()
	}
	if meta, ok := e.Extensions[ExtDoc]; ok && e.Type == TypeDocumentWritten {
		if meta = docStructure(meta); meta != "" {
			f.Extensions[ExtDoc] = meta
		}
	}
	return f
}

// erased returns the frame of the event with the receipt and the data that remain.
func (e Event) erased(receipt string, data []byte) (Event, error) {
	out := e.frame()
	out.Extensions[ExtErased], out.Data = receipt, data
	if err := e.checkRoom(out); err != nil {
		return e, err
	}
	return out, nil
}

// checkRoom returns an *InvalidError if what remains of the event needs more bytes than the stored event has.
func (e Event) checkRoom(left Event) error {
	room := len(AppendHeader(nil, e))
	if e.Extensions[ExtDataRef] == "" {
		room += len(e.Data)
	}
	if need := len(AppendHeader(nil, left)) + len(left.Data); need > room {
		return invalid("data", "what remains of %q has %d bytes, the event has %d", e.ID, need, room)
	}
	return nil
}

// structure returns the data that remain. Of invalid data nothing remains, which is invalid, too.
func (e Event) structure() []byte {
	p, err := Decode(e.Type, e.Data)
	if err != nil {
		return nil
	}
	of := structures[e.Type]
	if e.Type == TypeSessionUpdated && strings.HasPrefix(e.Source, DerivedSource) {
		of = ingestedUpdate
	}
	data := of(e.Data)
	if len(ListsOf(p)) > 0 {
		return withLists(data, e)
	}
	return data
}

// unpadded returns the data of an erased event without the blanks that keep its length: they follow the first brace, or
// are all there is.
func unpadded(data []byte) []byte {
	rest, isObject := bytes.CutPrefix(data, []byte("{"))
	text := bytes.TrimLeft(rest, " ")
	switch {
	case len(text) == len(rest):
		return data
	case isObject:
		return append([]byte("{"), text...)
	case len(text) == 0:
		return nil
	}
	return data
}
