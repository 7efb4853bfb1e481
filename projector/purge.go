package projector

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Shown is a record as a reader may see it.
type Shown struct {
	events.Record
	Purged bool // it is of a document that was purged later: its data and what it says of them are left out
}

// Record reads a record as a reader may see it: with data that are kept by reference,
// without what was purged, and of a unit only which events it is of. Its errors are those of
// the source, and a *events.DamageError for data that are not there.
func (l *Loader) Record(ctx context.Context, at events.Offset) (Shown, error) {
	rec, err := l.Source.Record(ctx, at)
	if err != nil {
		return Shown{Record: rec}, err
	}
	return l.veil().show(ctx, rec)
}

// Shown yields records as a reader may see them, as Record does. They come in the order of the log.
func (l *Loader) Shown(ctx context.Context, records iter.Seq2[events.Record, error]) iter.Seq2[Shown, error] {
	return func(yield func(Shown, error) bool) {
		v := l.veil()
		for rec, err := range records {
			s := Shown{Record: rec}
			if err == nil {
				s, err = v.show(ctx, rec)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// veil knows what was purged, of the documents that it was asked about.
type veil struct {
	*Loader
	kept   blobs
	purges map[events.Subject]events.Offset // the last purge, 0 if there is none
	looked int                              // documents of which the records were read to find out
	all    bool                             // purges has every document that was purged
}

// lookCost is about how many records of the whole log are read in the time in which those of
// one document are found.
const lookCost = 256

// maxPurges bounds how many documents a veil knows at a time, about 150 bytes each.
const maxPurges = 1 << 14

func (l *Loader) veil() *veil {
	return &veil{Loader: l, purges: make(map[events.Subject]events.Offset)}
}

func (v *veil) show(ctx context.Context, rec events.Record) (s Shown, err error) {
	switch {
	case rec.Subject.Kind == events.KindUnit:
		return Shown{Record: unitNames(rec)}, nil
	case !rec.Subject.IsSession():
		purge, err := v.purgeOf(ctx, rec)
		if err != nil {
			return s, err
		}
		if rec.Offset < purge {
			return Shown{stripped(rec), true}, nil
		}
	}
	s.Record, err = v.kept.resolve(ctx, v.Source, rec, v.maxValue())
	return s, err
}

// purgeOf returns the last purge of a record's document. One that is yet to come takes
// away records that were shown before it.
func (v *veil) purgeOf(ctx context.Context, rec events.Record) (events.Offset, error) {
	if at, known := v.purges[rec.Subject]; known || v.all {
		return at, nil
	}
	at, err := v.lastPurge(ctx, rec.Subject, rec.Offset)
	if err == nil && v.looked > 0 {
		err = v.readAll(ctx)
	}
	if err != nil || v.all {
		return at, err
	}
	if len(v.purges) >= maxPurges {
		clear(v.purges)
	}
	v.purges[rec.Subject] = at
	return at, nil
}

// readAll reads the whole log for purges, once that is less than was spent on documents
// one by one.
func (v *veil) readAll(ctx context.Context) error {
	src, ok := v.Source.(header)
	if !ok {
		return nil
	}
	head, err := src.Head(ctx)
	if err != nil || v.looked*lookCost < int(head) {
		return err
	}
	purges := make(map[events.Subject]events.Offset)
	for rec, err := range v.Source.Read(ctx, events.Range{}) {
		if err == nil && rec.Type == events.TypeDocumentDeleted {
			rec, err = Resolve(ctx, v.Source, rec, v.maxValue())
		}
		switch {
		case events.IsDamage(err):
		case err != nil:
			return err
		case !rec.Subject.IsSession() && isPurge(rec):
			purges[rec.Subject] = rec.Offset
		}
	}
	v.purges, v.all = purges, true
	return nil
}

// lastPurge returns the last purge of a document behind a record of it, 0 if there is none. Mostly
// that record is the last one, or the purge is.
func (v *veil) lastPurge(ctx context.Context, doc events.Subject, after events.Offset) (events.Offset, error) {
	if src, ok := v.Source.(lastReader); ok {
		last, err := src.Last(ctx, doc)
		switch {
		case err == nil && last.Offset <= after:
			return 0, nil
		case err == nil && isPurge(last):
			return last.Offset, nil
		case err != nil && !events.IsDamage(err) && !errors.Is(err, ErrNotFound):
			return 0, err
		}
	}
	v.looked++
	r, err := v.revisionsOf(ctx, doc)
	if err != nil {
		return 0, err
	}
	return r.purge, nil
}

func isPurge(rec events.Record) bool {
	if rec.Type != events.TypeDocumentDeleted {
		return false
	}
	p, ok := Decode(rec).Payload.(*events.DocumentDeleted)
	return ok && p.Reason == events.ReasonPurged
}

// stripped returns a record of a document without its content and what describes that.
func stripped(rec events.Record) events.Record {
	rec.Data, rec.ContentType, rec.DataSchema = nil, "", ""
	rec.Extensions = maps.Clone(rec.Extensions)
	delete(rec.Extensions, events.ExtDoc)
	delete(rec.Extensions, events.ExtDataRef)
	return rec
}

// unitNames returns the record of a unit with nothing of its events but subjects, types
// and ids: each of them is in the log itself, and may be purged there.
func unitNames(rec events.Record) events.Record {
	type name struct {
		Subject string `json:"subject,omitempty"`
		Type    string `json:"type,omitempty"`
		ID      string `json:"id,omitempty"`
	}
	var unit struct {
		Events []struct {
			Subject string `json:"subject"`
			Event   name   `json:"event"`
		} `json:"events"`
	}
	names := struct {
		Events []name `json:"events"`
	}{[]name{}}
	if err := rawjson.Unmarshal(rec.Data, &unit); err == nil {
		for _, e := range unit.Events {
			if e.Subject != "" {
				e.Event.Subject = e.Subject
			}
			names.Events = append(names.Events, e.Event)
		}
	}
	rec = stripped(rec)
	rec.ContentType = events.ContentTypeJSON
	var err error
	if rec.Data, err = rawjson.Marshal(names); err != nil {
		rec.Data = nil // a name that is not text
	}
	return rec
}

// PiecesType is the media type of a document that lists, as datarefs, the pieces of a file
// beyond the size of a value.
const PiecesType = "application/vnd.tally.pieces+json"

// Unreferenced returns the blobs, by their SHA-256, that a document refers to in any of its
// revisions, purged ones too, and that nobody else in its namespace does: those that are to
// be purged with it. What was purged itself refers to nothing. To find
// out it reads the namespace, if there is any blob at all to ask about.
func (l *Loader) Unreferenced(ctx context.Context, doc events.Subject) ([]string, error) {
	asked := make(map[string]map[events.Subject]bool) // who refers to each
	err := l.eachResolved(ctx, events.Range{Subject: doc}, func(rec events.Record) {
		for _, sum := range blobsOf(rec) {
			asked[sum] = make(map[events.Subject]bool)
		}
	})
	if err != nil || len(asked) == 0 {
		return nil, err
	}
	err = l.eachResolved(ctx, events.Range{Namespace: doc.Namespace}, func(rec events.Record) {
		switch {
		case rec.Subject == doc, rec.Subject.Kind == events.KindUnit, rec.Subject.Kind == events.KindBlob:
		case isPurge(rec):
			for _, by := range asked {
				delete(by, rec.Subject)
			}
		default:
			for sum := range sumsIn(rec) {
				if by := asked[sum]; by != nil {
					by[rec.Subject] = true
				}
			}
		}
	})
	maps.DeleteFunc(asked, func(_ string, by map[events.Subject]bool) bool { return len(by) > 0 })
	return slices.Sorted(maps.Keys(asked)), err
}

// eachResolved calls visit with the records of a range. One that cannot be read refers to
// nothing that anybody could read; one whose data are gone is taken as it is.
func (l *Loader) eachResolved(ctx context.Context, r events.Range, visit func(events.Record)) error {
	for rec, err := range l.Source.Read(ctx, r) {
		if err == nil {
			var whole events.Record
			if whole, err = Resolve(ctx, l.Source, rec, l.maxValue()); err == nil {
				rec = whole
			} else if events.IsDamage(err) {
				err = nil
			}
		}
		if events.IsDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		visit(rec)
	}
	return nil
}

// blobsOf returns the blobs that a revision of a document consists of, or links to.
func blobsOf(rec events.Record) (sums []string) {
	if sum, ok := events.ParseBlobRef(rec.Extensions[events.ExtDataRef]); ok {
		sums = append(sums, sum)
	}
	if meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc]); err == nil {
		for _, link := range meta.Links {
			if to, err := events.ParseSubject("", link.To); err == nil && to.Kind == events.KindBlob {
				sums = append(sums, to.ID)
			}
		}
	}
	if rec.ContentType == PiecesType {
		sums = slices.AppendSeq(sums, sumsOf(rec.Data))
	}
	return sums
}

// sumsIn yields whatever in a record may be the SHA-256 of a blob, however the reference to it is
// spelled: better too many than one too few.
func sumsIn(rec events.Record) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, text := range [][]byte{rec.Data, []byte(rec.Extensions[events.ExtDataRef]), []byte(rec.Extensions[events.ExtDoc])} {
			for sum := range sumsOf(text) {
				if !yield(sum) {
					return
				}
			}
		}
	}
}

// sumsOf yields each run of exactly 64 hex digits of a text.
func sumsOf(text []byte) iter.Seq[string] {
	const size = 64
	isHex := func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }
	return func(yield func(string) bool) {
		for from := 0; from+size <= len(text); from++ {
			to := from
			for to < len(text) && isHex(text[to]) {
				to++
			}
			if to-from == size && !yield(string(text[from:to])) {
				return
			}
			from = to // which is none, if there is anything
		}
	}
}
