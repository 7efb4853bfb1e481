package projector

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// maxUnreferenced bounds how many blobs and documents Unreferenced looks for.
const maxUnreferenced = 1 << 20

// Unreferenced returns the blobs of a namespace, and the documents that hold files of sessions or secrets of runs, that
// records refer to before they lose content, and that no record refers to afterwards. So a purge or an erasure of the
// content reaches them too. The result is sorted by kind and id.
//
// subjects have the records that lose content, and left returns what remains of a record, the record itself if that is
// all. Records of blobs and redo records refer to nothing, and neither do records of purged documents. If the records
// refer to something, Unreferenced reads the whole namespace.
func (l *Loader) Unreferenced(ctx context.Context, namespace string, subjects []events.Subject, left func(events.Record) events.Record) ([]events.Subject, error) {
	u := references{of: make(map[events.Subject]map[events.Subject]bool), left: left}
	for _, sub := range subjects {
		if err := l.eachResolved(ctx, events.Range{Subject: sub}, u.lose); err != nil {
			return nil, err
		}
	}
	for n := 0; n < len(u.documents); n++ { // a document that goes takes its blobs along
		if err := l.eachResolved(ctx, events.Range{Subject: u.documents[n]}, func(rec events.Record) { u.ask(referred(rec)) }); err != nil {
			return nil, err
		}
	}
	if u.isFull {
		return nil, &events.InvalidError{Field: "subject", Reason: "it refers to too many blobs and documents"}
	}
	if len(u.of) == 0 {
		return nil, nil
	}
	if err := l.eachResolved(ctx, events.Range{Namespace: namespace}, u.read); err != nil {
		return nil, err
	}
	return u.unnamed(), nil
}

// references are the blobs and documents that may have lost all references.
type references struct {
	of        map[events.Subject]map[events.Subject]bool // by name: the subjects that refer to it
	documents []events.Subject                           // that are not blobs
	left      func(events.Record) events.Record
	isFull    bool
}

// lose asks about what a record refers to, if it loses content.
func (u *references) lose(rec events.Record) {
	if left := u.left(rec); !left.Event.Equal(rec.Event) {
		u.ask(referred(rec))
	}
}

func (u *references) ask(list []events.Subject) {
	for _, sub := range list {
		if u.of[sub] != nil {
			continue
		}
		if len(u.of) >= maxUnreferenced {
			u.isFull = true
			return
		}
		u.of[sub] = make(map[events.Subject]bool)
		if sub.Kind != events.KindBlob {
			u.documents = append(u.documents, sub)
		}
	}
}

// read notes what a record refers to.
func (u *references) read(rec events.Record) {
	if rec.Subject.Kind == events.KindUnit || rec.Subject.Kind == events.KindBlob {
		return
	}
	if isPurge(rec) {
		for _, by := range u.of {
			delete(by, rec.Subject)
		}
		return
	}
	rec = u.left(rec)
	note := func(name events.Subject) {
		if by := u.of[name]; by != nil && name != rec.Subject {
			by[rec.Subject] = true
		}
	}
	for sum := range sumsIn(rec) {
		note(events.Document(rec.Subject.Namespace, events.KindBlob, sum))
	}
	if len(u.documents) > 0 {
		for name := range documentsIn(rec) {
			note(name)
		}
	}
}

// unnamed returns the names without reference. A document that keeps one keeps what it refers to.
func (u *references) unnamed() (list []events.Subject) {
	for isChanged := true; isChanged; {
		isChanged = false
		for name, by := range u.of {
			for sub := range by {
				if _, asked := u.of[sub]; !asked { // sub stays
					delete(u.of, name)
					isChanged = true
					break
				}
			}
		}
	}
	for name := range u.of {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b events.Subject) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// referred returns the blobs and documents that a record refers to and that may go with it.
func referred(rec events.Record) (list []events.Subject) {
	ns := rec.Subject.Namespace
	if !rec.Subject.IsSession() {
		for _, sum := range blobsOf(rec) {
			list = append(list, events.Document(ns, events.KindBlob, sum))
		}
		return list
	}
	for sum := range sumsIn(rec) {
		list = append(list, events.Document(ns, events.KindBlob, sum))
	}
	var formats map[string]events.FileFormat
	switch p := Decode(rec).Payload.(type) {
	case *events.SessionCreated:
		formats = p.Formats
	case *events.SessionUpdated:
		formats = p.Formats
	case *events.TurnAppended:
		formats = p.Formats
	case *events.ThreadReplaced:
		formats = p.Formats
	case *events.RunFinished:
		formats = p.Formats
	case *events.RunCreated:
		formats = map[string]events.FileFormat{"": {Doc: p.Secrets}}
	}
	for _, f := range formats {
		if doc, _, err := f.Doc.Parse(ns); f.Doc != "" && err == nil && doc.Kind != events.KindUnit && doc.Kind != events.KindType {
			list = append(list, doc)
		}
	}
	return list
}

// documentsIn yields every document that a record may name. A false one only keeps a document; a miss would erase it.
func documentsIn(rec events.Record) iter.Seq[events.Subject] {
	const prefix = "document/"
	return func(yield func(events.Subject) bool) {
		for _, text := range [][]byte{rec.Data, []byte(rec.Extensions[events.ExtDoc])} {
			if bytes.Contains(text, []byte(`document\`)) {
				text = bytes.ReplaceAll(text, []byte(`\/`), []byte("/"))
			}
			for {
				i := bytes.Index(text, []byte(prefix))
				if i < 0 {
					break
				}
				text = text[i:]
				end := bytes.IndexAny(text, "\"\\\r\n")
				if end < 0 {
					end = len(text)
				}
				name := string(text[:min(end, len(prefix)+3*events.MaxIDLen+64)])
				for name != "" { // an id may have @, and a reference may name a revision
					if sub, err := events.ParseSubject(rec.Subject.Namespace, name); err == nil && !yield(sub) {
						return
					}
					name = name[:max(strings.LastIndexByte(name, '@'), 0)]
				}
				text = text[len(prefix):]
			}
		}
	}
}
