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

// Shown is a record as readers may see it.
type Shown struct {
	events.Record
	Purged bool // its document was purged later: data and description are left out
}

// Record reads a record as readers may see it: data stored by reference are resolved, purged data are left out, and a
// batch record lists only the names of its events. It returns the errors of the source, and a *events.DamageError for
// missing data.
func (l *Loader) Record(ctx context.Context, at events.Offset) (Shown, error) {
	rec, err := l.Source.Record(ctx, at)
	if err != nil {
		return Shown{Record: rec}, err
	}
	return l.veil().show(ctx, rec)
}

// Shown yields records in the form that Record returns. The input must be in log order.
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

// veil caches the purges of the documents that it was asked about.
type veil struct {
	*Loader
	kept   blobs
	purges map[events.Subject]events.Offset // the last purge; 0: none
	looked int                              // number of documents whose records were read to find their purge
	all    bool                             // purges is complete
}

// lookCost is the approximate number of records of a whole-log read that take as long as finding the records of one
// document.
const lookCost = 256

// maxPurges bounds the documents in a veil, at about 150 bytes each.
const maxPurges = 1 << 14

func (l *Loader) veil() *veil {
	return &veil{Loader: l, purges: make(map[events.Subject]events.Offset)}
}

func (v *veil) show(ctx context.Context, rec events.Record) (s Shown, err error) {
	switch {
	case rec.Subject.Kind == events.KindUnit:
		return Shown{Record: batchNames(rec)}, nil
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

// purgeOf returns the last purge of a record's document. A purge also hides records that were shown before it.
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

// readAll reads the whole log for purges, once that costs less than the look-ups of single documents so far.
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

// lastPurge returns the last purge of a document behind one of its records, or 0. In most cases that record is the
// document's last one, or the purge is.
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

// stripped returns a record of a document without its content and the description of the content.
func stripped(rec events.Record) events.Record {
	rec.Data, rec.ContentType, rec.DataSchema = nil, "", ""
	rec.Extensions = maps.Clone(rec.Extensions)
	delete(rec.Extensions, events.ExtDoc)
	delete(rec.Extensions, events.ExtDataRef)
	return rec
}

// batchNames returns a batch record with only the subjects, types and ids of its events. Each event is in the log
// itself, where it may be purged.
func batchNames(rec events.Record) events.Record {
	type name struct {
		Subject string `json:"subject,omitempty"`
		Type    string `json:"type,omitempty"`
		ID      string `json:"id,omitempty"`
	}
	var batch struct {
		Events []struct {
			Subject string `json:"subject"`
			Event   name   `json:"event"`
		} `json:"events"`
	}
	names := struct {
		Events []name `json:"events"`
	}{[]name{}}
	if err := rawjson.Unmarshal(rec.Data, &batch); err == nil {
		for _, e := range batch.Events {
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
		rec.Data = nil // a name is not valid text
	}
	return rec
}

// PiecesType is the media type of a document that lists, as datarefs, the pieces of a file that exceeds the size limit
// of a value.
const PiecesType = "application/vnd.tally.pieces+json"

// Refers reports whether a record of a namespace behind an offset refers to a blob.
func (l *Loader) Refers(ctx context.Context, namespace, sum string, after events.Offset) (is bool, err error) {
	err = l.eachResolved(ctx, events.Range{Namespace: namespace, After: after}, func(rec events.Record) {
		if rec.Subject.Kind != events.KindUnit && rec.Subject.Kind != events.KindBlob && !isPurge(rec) {
			for other := range sumsIn(rec) {
				is = is || other == sum
			}
		}
	})
	return is, err
}

// eachResolved calls visit with the records of a range. It skips records that cannot be read: nobody can follow their
// references. A record with missing data is passed without them.
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

// blobsOf returns the blobs that a revision of a document consists of or links to.
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

// sumsIn yields every text in a record that may be the SHA-256 of a blob, in any form of reference. False positives
// only keep a blob; a miss would purge it.
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
			from = to // an empty run still advances by one
		}
	}
}
