package testkit

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// brokenMeta is invalid metadata of a document: a record with it is rejected.
const brokenMeta = "{"

// documents are the documents of drawn logs: of several kinds, with ids that have common prefixes, and with bytes that
// are not text.
var documents = []events.Subject{
	events.Document("", "doc", "a"), events.Document("", "doc", "a/1"), events.Document("", "doc", "a/2"), events.Document("", "doc", "b\x00\xff"),
	events.Document("", "note", "a/1"), events.Document("", events.KindBlob, "not-the-hash"), events.Document("other", "doc", "a"),
}

// Documents draws a random log of a few documents: writes with links and expiry times, deletions, renames, purges,
// rejected records, records of other vocabularies, and in between records of a session and of a batch. Each record is
// recorded a second after the one before it.
func Documents() *rapid.Generator[Records] {
	return rapid.Custom(func(t *rapid.T) Records {
		var list Records
		for range rapid.IntRange(1, 40).Draw(t, "records") {
			at := events.Offset(len(list) + 1)
			e := drawDocumentEvent(t)
			e.ID, e.Source = fmt.Sprintf("event-%d", at), "urn:test"
			list = append(list, events.Record{Event: e, Offset: at, Recorded: second(int(at))})
		}
		return list
	})
}

func second(n int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
}

func drawDocumentEvent(t *rapid.T) events.Event {
	doc := rapid.SampledFrom(documents).Draw(t, "document")
	switch rapid.IntRange(0, 15).Draw(t, "what") {
	case 0, 1, 2:
		return deletion(t, doc, &events.DocumentDeleted{Reason: "done"})
	case 3:
		return deletion(t, doc, &events.DocumentDeleted{Reason: events.ReasonPurged})
	case 4, 5:
		to := rapid.SampledFrom(documents).Draw(t, "to")
		return deletion(t, doc, &events.DocumentDeleted{Reason: events.ReasonRenamed, To: events.RefOf(to, 0)})
	case 6:
		return events.Event{Type: events.TypeDocumentDeleted, Subject: doc, Data: []byte(`{}`)} // without a reason
	case 7:
		return events.Event{Type: events.TypeDocumentWritten, Subject: doc, Data: []byte("void")}.WithExtension(events.ExtDoc, brokenMeta)
	case 8:
		return events.Event{Type: "com.example.something.happened", Subject: doc, Data: []byte("foreign")}
	case 9:
		return events.Event{Type: events.TypeTurnAppended, Subject: events.Session("", "s"), Data: []byte(`{"entries":[]}`)}
	case 10:
		return events.Event{Type: events.TypeUnitAppended, Subject: events.Document("", events.KindUnit, "u"), Data: []byte(`{"events":[]}`)}
	}
	e := events.Event{Type: events.TypeDocumentWritten, Subject: doc, ContentType: "text/plain", Data: []byte(rapid.StringMatching("[a-c]{0,3}").Draw(t, "text"))}
	if meta := drawMeta(t); meta.String() != "{}" {
		e = e.WithExtension(events.ExtDoc, meta.String())
	}
	return e
}

func deletion(t *rapid.T, doc events.Subject, p *events.DocumentDeleted) events.Event {
	e, err := events.New("urn:test", doc, p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func drawMeta(t *rapid.T) (m events.DocMeta) {
	m.Title = rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "title")
	m.Owner = rapid.SampledFrom([]string{"", "me", "you"}).Draw(t, "owner")
	m.Layer = rapid.SampledFrom([]string{"", "personal"}).Draw(t, "layer")
	for range rapid.IntRange(0, 2).Draw(t, "links") {
		m.Links = append(m.Links, events.Link{Rel: rapid.SampledFrom([]string{"", "cites"}).Draw(t, "rel"), To: rapid.SampledFrom(documents).Draw(t, "link").String()})
	}
	if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
		m.ExpiresAt = events.TimestampOf(second(rapid.IntRange(0, 60).Draw(t, "at")))
	}
	return m
}

// A DocumentModel is a map of documents with their expected state.
type DocumentModel map[events.Subject]*ModelDocument

// ModelDocument is the expected state of a document.
type ModelDocument struct {
	First, Last events.Offset   // of its records, since the last purge
	Revisions   []events.Record // the readable ones, including a purge itself
	Rejected    int             // since the last purge
	Meta        events.DocMeta  // of the last write, zero after a purge
	RenamedTo   events.Subject  // set if a rename deleted it
}

// Newest returns the newest revision, or nil.
func (d *ModelDocument) Newest() *events.Record {
	if len(d.Revisions) == 0 {
		return nil
	}
	return &d.Revisions[len(d.Revisions)-1]
}

// Deleted reports whether the newest revision is a deletion.
func (d *ModelDocument) Deleted() bool {
	return d.Newest() != nil && d.Newest().Type == events.TypeDocumentDeleted
}

// Readable reports whether a document can be read at a time of the log.
func (d *ModelDocument) Readable(now time.Time) bool {
	return d.Newest() != nil && !d.Deleted() && !d.Expired(now)
}

// Expired reports whether the last write has expired.
func (d *ModelDocument) Expired(now time.Time) bool {
	until, ok := d.Meta.ExpiresAt.Time()
	return ok && !now.Before(until)
}

// ModelOf applies drawn records to a model, one by one.
func ModelOf(records Records) DocumentModel {
	m := make(DocumentModel)
	for _, rec := range records {
		if !rec.Subject.IsSession() && rec.Subject.Kind != events.KindUnit {
			m.take(rec)
		}
	}
	return m
}

func (m DocumentModel) take(rec events.Record) {
	d := m[rec.Subject]
	if d == nil {
		d = &ModelDocument{First: rec.Offset}
		m[rec.Subject] = d
	}
	d.Last = rec.Offset
	switch text := string(rec.Data); {
	case rec.Type == events.TypeDocumentWritten && rec.Extensions[events.ExtDoc] == brokenMeta,
		rec.Type == events.TypeDocumentDeleted && text == `{}`:
		d.Rejected++
	case rec.Type == events.TypeDocumentWritten:
		meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc])
		if err != nil {
			panic(err) // the generator never draws this
		}
		d.Meta, d.RenamedTo = meta, events.Subject{}
		d.Revisions = append(slices.Clip(d.Revisions), rec)
	case rec.Type == events.TypeDocumentDeleted:
		m.delete(d, rec)
	}
}

func (m DocumentModel) delete(d *ModelDocument, rec events.Record) {
	p, err := events.DecodeAs[events.DocumentDeleted](rec.Event)
	if err != nil {
		panic(err)
	}
	if p.Reason == events.ReasonPurged {
		*d = ModelDocument{First: rec.Offset, Last: rec.Offset, Revisions: []events.Record{rec}}
		return
	}
	if d.Newest() == nil || d.Deleted() {
		d.Rejected++
		return
	}
	d.Revisions = append(slices.Clip(d.Revisions), rec)
	if to, _, err := p.To.Parse(rec.Subject.Namespace); err == nil {
		d.RenamedTo = to
	}
}
