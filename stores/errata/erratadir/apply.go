package erratadir

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// guards has the event types that make a plan wrong if others append them.
var guards = []string{events.TypeRunFinished, events.TypeRunAnnotated, events.TypeCheckpointSaved, events.TypeCheckpointCleared}

// Apply implements sessiondir.Plan.
func (p *plan) Apply(ctx context.Context) error {
	if p.recipe != nil {
		if err := p.recipe.put(ctx, p.u.In, p.origin.Root); err != nil {
			return err
		}
	}
	w := p.u.In.Writer(p.s.Subject, p.base, guards...)
	w.Rewrites = p.rewrites
	for _, s := range p.steps {
		if err := p.applyStep(ctx, w, s); err != nil {
			return err
		}
	}
	return w.Flush(ctx)
}

func (p *plan) applyStep(ctx context.Context, w *sessiondir.Writer, s step) error {
	if s.waits {
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
	e, err := events.New(cmp.Or(s.source, EventSource), p.s.Subject, s.payload(w.Last))
	if err != nil {
		return err
	}
	e = stamp.Named(e, p.base, s.what, s.at) // the same difference always yields the same event
	e.ID = cmp.Or(s.id, e.ID)
	return w.Add(ctx, e)
}

// Seal implements sessiondir.Sealer. After the plan was applied, the state can render the files, and Seal records how
// each is spelled. A file that is rendered with other bytes is kept whole, and a missing one stays missing, until the
// state renders something else for it.
func (u *folder) Seal(ctx context.Context, v view, origin *events.Origin) error {
	wanted, err := u.spellings(ctx, v, origin)
	if err != nil || len(wanted) == 0 {
		return err
	}
	var gone []events.Subject
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		have := v.s.Ledger.Formats[name]
		if doc, _, err := have.Doc.Parse(v.s.Subject.Namespace); wanted[name].Gone && have.Doc != "" && err == nil {
			gone = append(gone, doc)
		}
	}
	w := u.In.Writer(v.s.Subject, v.s.Offset(), guards...)
	e, err := events.New(EventSource, v.s.Subject, &events.SessionUpdated{Set: events.Fields{}, Reason: "import", Formats: wanted})
	if err != nil {
		return err
	}
	e.ID = events.DerivedID(Format, v.s.Subject.ID, v.s.Offset().String(), "formats", sessiondir.SumOf(e.Data))
	if v.s.Ledger.CreatedAt == u.created && !u.In.There[u.ID] {
		e.Time = sessiondir.TimeOf(u.created)
	}
	if err := w.Add(ctx, e); err != nil {
		return err
	}
	if err := w.Flush(ctx); err != nil {
		return err
	}
	for _, doc := range gone {
		if err := u.In.Drop(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}

// spellings returns the formats that the session does not have yet. It keeps files whole if that is needed.
func (u *folder) spellings(ctx context.Context, v view, origin *events.Origin) (map[string]events.FileFormat, error) {
	wanted := make(map[string]events.FileFormat)
	for _, f := range u.Files {
		format := f.Format
		format.Mode = f.Mode
		data, err := v.render(ctx, f.Path, format, true)
		if err != nil {
			return nil, err
		}
		if data == nil || sessiondir.SumOf(data) != f.Sum || partOf(u.ID, f.Path) == partPrompts && !format.FinalNewline { // appended lines need a line end before them
			doc := documentOf(u.In.Target.Namespace(), origin.Root, f.Full)
			if err := u.In.Keep(ctx, doc, origin, f, events.Link{Rel: "session", To: v.s.Subject.String()}); err != nil {
				return nil, err
			}
			format.Doc, format.Of = events.RefOf(doc, 0), asRendered(u, f.Path, data)
		}
		if have, ok := v.s.Ledger.Formats[sessiondir.KeyOf(f.Path)]; !ok || have != format {
			wanted[sessiondir.KeyOf(f.Path)] = format
		}
	}
	for _, name := range v.paths() {
		if u.file(name) != nil {
			continue
		}
		format := events.FileFormat{Gone: true}
		data, err := v.render(ctx, name, format, true)
		if err != nil {
			return nil, err
		}
		format.Of = asRendered(u, name, data)
		have, known := v.s.Ledger.Formats[sessiondir.KeyOf(name)]
		if known && have != format || !known && data != nil {
			wanted[sessiondir.KeyOf(name)] = format
		}
	}
	return wanted, nil
}

// asRendered returns the hash of the state's rendering, for which a file keeps its own bytes. For a file that the
// state never renders it returns "", so the bytes stay for ever.
func asRendered(u *folder, name string, data []byte) string {
	if partOf(u.ID, name) == partOther {
		return ""
	}
	return sessiondir.SumOf(data)
}
