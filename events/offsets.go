package events

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// Reference is an offset that an event names, or a document.
type Reference struct {
	Subject Subject // of the record that is meant
	Offset  Offset  // 0: a document, whatever its revision
	Exact   bool    // the record at Offset is meant; false: the last one of Subject at or below Offset
}

// offsetKind is how a field names an offset.
type offsetKind int

const (
	ownBelow   offsetKind = iota // of the event's own subject, at or below the offset
	ownExact                     // of the event's own subject, at the offset
	ofSession                    // of the session that the member "session" beside the field names, at or below the offset
	ofDocument                   // a DocRef
)

// offsetField is a field of the data that names an offset: a JSON pointer, in which * stands for all members or elements.
type offsetField struct {
	path string
	kind offsetKind
}

// offsetFields has every field that names an offset, by the type of the event, and by ExtDoc for the metadata of a
// document. Beside them, ExtBasis names an offset of any event, and Type.Offsets those of other vocabularies.
var offsetFields = map[string][]offsetField{
	TypeSessionCreated:  {{"/fork/offset", ofSession}, {"/parent/offset", ofSession}, {"/recipe", ofDocument}, {"/formats/*/doc", ofDocument}},
	TypeSessionUpdated:  {{"/set/recipe", ofDocument}, {"/set/cursors/*", ownBelow}, {"/formats/*/doc", ofDocument}},
	TypeSessionRewound:  {{"/to", ownBelow}, {"/undoes", ownExact}, {"/files/*/before", ofDocument}},
	TypeCheckpointSaved: {{"/at", ownBelow}, {"/files/*/blob", ofDocument}},
	TypeRunCreated:      {{"/parent/offset", ofSession}, {"/template", ofDocument}, {"/secrets", ofDocument}},
	TypeRunProgressed:   {{"/fence", ownExact}},
	TypeRunFinished:     {{"/fence", ownExact}, {"/judged/offset", ownBelow}, {"/formats/*/doc", ofDocument}},
	TypeTurnAppended:    {{"/formats/*/doc", ofDocument}},
	TypeThreadReplaced:  {{"/formats/*/doc", ofDocument}},
	TypeDocumentDeleted: {{"/to", ofDocument}},
	ExtDoc:              {{"/base", ownExact}},
}

// MapOffsets returns the event with other offsets in the places of all that it names. to returns the new offset for
// each one, up to MaxOffset, where 0 is "before everything". For a document without a revision the result is ignored. An
// error of to ends the call. All other bytes stay, members that
// tally does not know included. pointers are the Offsets of the event's Type, if it is of another vocabulary. A field that
// is invalid, and the data of a redo record (TypeUnitAppended), stay as they are.
func (e Event) MapOffsets(pointers []string, to func(Reference) (Offset, error)) (Event, error) {
	if at, ok := e.Basis(); ok && at > 0 {
		mapped, err := to(Reference{Subject: e.Subject, Offset: at})
		if err != nil {
			return e, fmt.Errorf("%s: %w", ExtBasis, err)
		}
		e = e.WithExtension(ExtBasis, mapped.Padded())
	}
	if meta, ok := e.Extensions[ExtDoc]; ok && !e.Subject.IsSession() {
		mapped, err := e.mapFields(Raw(meta), offsetFields[ExtDoc], to)
		if err != nil {
			return e, fmt.Errorf("%s: %w", ExtDoc, err)
		}
		e = e.WithExtension(ExtDoc, string(mapped))
	}
	fields := offsetFields[e.Type]
	if !IsKnown(e.Type) {
		for _, p := range pointers {
			fields = append(fields, offsetField{p, ownBelow})
		}
	}
	if len(fields) == 0 || len(e.Data) == 0 {
		return e, nil
	}
	data, err := e.mapFields(e.Data, fields, to)
	e.Data = data
	return e, err
}

// edit is a new text in the place of a part of the data.
type edit struct {
	from, to int
	text     []byte
}

// mapFields returns data with other offsets in fields.
func (e Event) mapFields(data Raw, fields []offsetField, to func(Reference) (Offset, error)) (Raw, error) {
	var edits []edit
	for _, f := range fields {
		path := strings.Split(f.path, "/")[1:]
		err := visitFields(data, 0, nil, path, IsKnown(e.Type), func(v Raw, at int, beside Raw) error {
			text, err := e.mapField(f.kind, v, beside, to)
			if err != nil {
				return fmt.Errorf("data%s: %w", f.path, err)
			}
			if text != nil {
				edits = append(edits, edit{at, at + len(v), text})
			}
			return nil
		})
		if err != nil {
			return data, err
		}
	}
	if len(edits) == 0 {
		return data, nil
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out Raw
	done := 0
	for _, x := range edits {
		if x.from < done {
			continue // two pointers to one member
		}
		out = append(append(out, data[done:x.from]...), x.text...)
		done = x.to
	}
	return append(out, data[done:]...), nil
}

// visitFields calls visit for each value at a path in v, with its place in the whole data and the object around it. If
// wild is set, * in the path stands for all members or elements.
func visitFields(v Raw, at int, beside Raw, path []string, wild bool, visit func(v Raw, at int, beside Raw) error) error {
	if len(path) == 0 {
		return visit(v, at, beside)
	}
	if !wild || path[0] != "*" {
		from, to, err := rawjson.Locate(v, "/"+path[0])
		if err != nil {
			return nil // no such member
		}
		return visitFields(v[from:to], at+from, v, path[1:], wild, visit)
	}
	if elems, err := rawjson.Array(v); err == nil {
		i := bytes.IndexByte(v, '[') + 1
		for _, elem := range elems {
			for strings.IndexByte(", \t\r\n", v[i]) >= 0 {
				i++
			}
			if err := visitFields(elem, at+i, v, path[1:], wild, visit); err != nil {
				return err
			}
			i += len(elem)
		}
		return nil
	}
	members, _ := rawjson.Object(v)
	for _, m := range members {
		from, to, err := rawjson.Locate(v, "/"+pointerEscape.Replace(m.Name))
		if err == nil {
			err = visitFields(v[from:to], at+from, v, path[1:], wild, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// mapField returns the new text of a field, or nil if it stays.
func (e Event) mapField(kind offsetKind, v, beside Raw, to func(Reference) (Offset, error)) ([]byte, error) {
	if kind == ofDocument {
		text, err := rawjson.String(v)
		if err != nil {
			return nil, nil
		}
		doc, at, err := DocRef(text).Parse(e.Subject.Namespace)
		if err != nil {
			return nil, nil
		}
		mapped, err := to(Reference{Subject: doc, Offset: at, Exact: at != 0})
		if err != nil || at == 0 {
			return nil, err
		}
		name, _, _ := strings.Cut(text, "@")
		return rawjson.AppendString(nil, name+mapped.String()), nil
	}
	at, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil || at == 0 || Offset(at) > MaxOffset {
		return nil, nil
	}
	r := Reference{Subject: e.Subject, Offset: Offset(at), Exact: kind == ownExact}
	if kind == ofSession {
		members, _ := rawjson.Object(beside)
		raw, _ := members.Get("session")
		id, err := rawjson.String(raw)
		if err != nil {
			return nil, nil
		}
		r.Subject = Session(e.Subject.Namespace, id)
	}
	mapped, err := to(r)
	if err != nil {
		return nil, err
	}
	return strconv.AppendUint(nil, uint64(mapped), 10), nil
}
