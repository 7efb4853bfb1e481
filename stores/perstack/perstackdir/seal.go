package perstackdir

import (
	"context"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Seal implements sessiondir.Sealer. It records how each file is spelled, after the import, when the state renders the
// files. A file that would be rendered differently is kept whole until the state changes. A file that is gone stays
// away until then.
func (jf *jobFolder) Seal(ctx context.Context, v view, origin *events.Origin) error {
	names, err := sessiondir.Differing(ctx, v, jf)
	if err != nil {
		return err
	}
	s := sealing{v, jf, origin, make(map[string]events.FileFormat)}
	for _, name := range names {
		if err := s.settle(ctx, name); err != nil {
			return err
		}
	}
	if len(s.wanted) == 0 {
		return nil
	}
	w := jf.In.Writer(v.s.Subject, v.s.Offset(), guards...)
	e, err := events.New(EventSource, v.s.Subject, &events.SessionUpdated{Set: events.Fields{}, Reason: "import", Formats: s.wanted})
	if err != nil {
		return err
	}
	at := events.Timestamp("")
	if !jf.In.There[jf.ID] {
		at = jf.created
	}
	if err := w.Add(ctx, stamp.Named(e, v.s.Offset(), "formats", at)); err != nil {
		return err
	}
	if err := w.Flush(ctx); err != nil {
		return err
	}
	return s.drop(ctx)
}

type sealing struct {
	v      view
	folder *jobFolder
	origin *events.Origin
	wanted map[string]events.FileFormat
}

// settle handles a file that would be rendered differently.
func (s sealing) settle(ctx context.Context, name string) error {
	out, err := s.v.records(ctx)
	if err != nil {
		return err
	}
	st, f := out.files[name], s.folder.file(name)
	if f == nil {
		s.wanted[sessiondir.KeyOf(name)] = events.FileFormat{Gone: true, Of: st.rendered()}
		return nil
	}
	format := f.Format
	format.Mode = f.Mode
	if st != nil && f.Value {
		raw, err := s.v.value(ctx, st)
		if err != nil {
			return err
		}
		if sessiondir.SumOf(sessiondir.SpellJSON(raw, format)) == f.Sum {
			s.wanted[sessiondir.KeyOf(name)] = format
			return nil
		}
	}
	format.Doc, err = s.keep(ctx, f)
	if err != nil || format.Doc == "" {
		return err
	}
	if locate(name).part != partOther {
		if format.Of, err = s.v.sumAs(ctx, st, format); err != nil {
			return err
		}
	}
	if have := s.v.s.Ledger.Formats[sessiondir.KeyOf(name)]; have != format {
		s.wanted[sessiondir.KeyOf(name)] = format
	}
	return nil
}

// keep keeps a file whole, sealed if it may hold secrets. Without a key, it does not keep such a file and returns no
// document.
func (s sealing) keep(ctx context.Context, f *sessiondir.File) (events.DocRef, error) {
	doc := documentOf(s.folder.In.Target.Namespace(), s.origin.Root, f.Full)
	session := events.Link{Rel: "session", To: s.v.s.Subject.String()}
	if !s.folder.isSecretive(f) {
		return events.RefOf(doc, 0), s.folder.In.Keep(ctx, doc, s.origin, f, session)
	}
	if !s.folder.mayKeep(f, "the setting has secrets, and differs from the one that the run started with") {
		return "", nil
	}
	doc = privateOf(doc)
	data, err := s.folder.Tree.Read(f, int64(s.folder.Limit))
	if err != nil {
		return "", err
	}
	if sessiondir.SumOf(data) != f.Sum {
		return "", sessiondir.ErrChanged
	}
	box := *f
	if box.Data, err = s.folder.keys.ring.SealDocument(doc, data); err != nil {
		return "", err
	}
	box.Sum, box.Size = sessiondir.SumOf(box.Data), int64(len(box.Data))
	return events.RefOf(doc, 0), s.folder.In.Keep(ctx, doc, s.origin, &box, session)
}

// drop deletes the documents of files that are no longer kept whole.
func (s sealing) drop(ctx context.Context) error {
	for _, key := range slices.Sorted(maps.Keys(s.wanted)) {
		have := s.v.s.Ledger.Formats[key].Doc
		doc, _, err := have.Parse(s.v.s.Subject.Namespace)
		if have == "" || err != nil || s.wanted[key].Doc == have {
			continue
		}
		if err := s.folder.In.Drop(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}
