package sessiondir

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// importer is one import of a root, or of a part of it.
type importer[S Store[S, F, V], F Found[V], V View] struct {
	*Intake
	store S
	shape Shape
}

func (im importer[S, F, V]) run(ctx context.Context) error {
	entries, err := im.store.Entries(im.Intake, im.shape.Sessions)
	if err != nil {
		return err
	}
	if err := im.begin(ctx, entries); err != nil {
		return err
	}
	if err := im.sessions(ctx, entries); err != nil || im.IsPart() || im.shape.Files {
		return cmp.Or(err, ctx.Err())
	}
	return im.rootFiles(ctx)
}

// begin finds out which sessions are in the store already. If each session is a file, begin skips that: the import
// loads the session when it reads the file, and the folder may have any name.
func (im importer[S, F, V]) begin(ctx context.Context, entries []Entry) error {
	if im.shape.Files {
		im.Expect(len(entries))
		return nil
	}
	return im.Begin(ctx, entries, func(e Entry) string { return im.store.Birth(im.Intake, e) })
}

// sessions imports several sessions at the same time, so that others are read while one waits for the disk. The
// report lists them in the order of their entries.
func (im importer[S, F, V]) sessions(ctx context.Context, entries []Entry) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var group sync.WaitGroup
	var next atomic.Int64
	reports := make([]layouts.Report, len(entries))
	for range min(im.store.Parallel(), len(entries)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(entries); i = int(next.Add(1)) - 1 {
				one := importer[S, F, V]{im.Part(), im.store, im.shape}
				if err := one.session(work, entries[i]); err != nil {
					stop(err) // ends the other goroutines too
				}
				reports[i] = one.Report
			}
		})
	}
	group.Wait()
	for _, r := range reports {
		im.Report.Add(r)
	}
	return cmp.Or(ctx.Err(), context.Cause(work))
}

// session imports one session.
func (im importer[S, F, V]) session(ctx context.Context, u Entry) error {
	err := Retry(ctx, func(again bool) error {
		before := len(im.Report.Problems)
		err := im.attempt(ctx, u, again)
		if err != nil {
			im.Report.Problems = im.Report.Problems[:before] // it is imported again, or the error reports the problems
		}
		return err
	})
	if im.Dry != nil {
		im.Dry.Forget(events.Session(im.Target.Namespace(), u.ID))
	}
	return im.Settle(ctx, u.path(), err)
}

func (im importer[S, F, V]) attempt(ctx context.Context, u Entry, again bool) error {
	f, err := im.store.List(ctx, im.Folder(u))
	if err != nil {
		return err
	}
	defer f.Close()
	if im.isEmpty(f) {
		return nil
	}
	sub := events.Session(im.Target.Namespace(), f.Base().ID)
	if err := sub.Validate(); err != nil {
		return err
	}
	s := projector.NewSession(sub)
	if again || im.shape.Files || sub.ID != u.ID || im.There[sub.ID] {
		if s, err = im.Load(ctx, sub.ID); err != nil {
			return err
		}
	}
	v := im.store.View(im.Target, s)
	if err := f.Scan(ctx, v); err != nil || im.isEmpty(f) {
		return err
	}
	return im.compare(ctx, s, v, f)
}

// isEmpty reports whether a folder has no files (any more). Then only its links are reported.
func (im importer[S, F, V]) isEmpty(f F) bool {
	at := f.Base()
	if len(at.Files) > 0 {
		return false
	}
	im.Skipped(at.Links...)
	return true
}

// compare imports one session; s is its loaded state. If the session already yields these files, or must not be
// changed by them, compare adds no event and reports that.
func (im importer[S, F, V]) compare(ctx context.Context, s *projector.Session, v V, f F) error {
	if im.Options.Part && IsArchived(s.Ledger) {
		return im.revive(ctx, s, f.Status())
	}
	fresh := s.Offset() == 0
	if !fresh {
		list, err := Differing(ctx, v, f)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			im.finish(f, &im.Report.Unchanged)
			return nil
		}
	}
	origin := im.Origin(s, f.Birth())
	p, err := f.Plan(ctx, v, origin)
	if err != nil {
		return err
	}
	if !fresh {
		if refused, err := im.refuses(ctx, s, p, f); refused || err != nil {
			return err
		}
	}
	before := im.Report.Events
	if err := im.carryOut(ctx, p, f, origin); err != nil {
		return err
	}
	outcome := &im.Report.Changed
	switch {
	case fresh:
		outcome = &im.Report.Added
	case im.Report.Events == before:
		outcome = &im.Report.Unchanged // another writer imported it meanwhile
	}
	im.finish(f, outcome)
	return nil
}

// refuses reports a session that the folder must not change.
func (im importer[S, F, V]) refuses(ctx context.Context, s *projector.Session, p Plan, f F) (bool, error) {
	reason, way := im.erased(s), "import into another namespace (--namespace)"
	if reason == "" && !im.Options.Merge {
		var err error
		if reason, err = im.refusal(ctx, s, im.shape.Kind, f.Birth(), p); err != nil {
			return false, err
		}
		way = im.wayOut()
	}
	if reason == "" {
		return false, nil
	}
	im.Report.Sessions++
	im.Report.Refused = append(im.Report.Refused, f.Base().ID)
	im.Problem(f.Base().path(), 0, reason+": "+way)
	return true, nil
}

// carryOut applies a plan, records how the files are spelled, and compares the store's files with the folder again. A
// brief dry run compares nothing.
func (im importer[S, F, V]) carryOut(ctx context.Context, p Plan, f F, origin *events.Origin) error {
	if err := p.Apply(ctx); err != nil || im.Dry != nil && im.Dry.Brief {
		return err
	}
	v, err := im.behind(ctx, p, f)
	if err != nil {
		return err
	}
	sealer, seals := any(f).(Sealer[V])
	if seals {
		if err := sealer.Seal(ctx, v, origin); err != nil {
			return err
		}
		if v, err = im.load(ctx, f); err != nil {
			return err
		}
	}
	list, err := Differing(ctx, v, f)
	if err != nil {
		return err
	}
	if im.shape.Files && len(list) > 0 {
		list = []string{f.Base().File}
	}
	im.NotAsItIs(f.Base().Dir, list)
	if seals {
		return im.count(ctx, v, f)
	}
	return nil
}

// count adds to the report how each file is kept.
func (im importer[S, F, V]) count(ctx context.Context, v V, f F) error {
	for _, file := range f.Base().Files {
		out, _, err := v.File(ctx, file.Path)
		if err != nil {
			return err
		}
		if !f.Leaves(file.Path) {
			im.Report.Files.Add(out.Way())
		}
	}
	return nil
}

// behind returns the session after a plan was applied.
func (im importer[S, F, V]) behind(ctx context.Context, p Plan, f F) (V, error) {
	if r, ok := p.(Recaller[V]); ok {
		if v, known, err := r.Recall(ctx); known || err != nil {
			return v, err
		}
	}
	return im.load(ctx, f)
}

func (im importer[S, F, V]) load(ctx context.Context, f F) (v V, err error) {
	s, err := im.Load(ctx, f.Base().ID)
	if err != nil {
		return v, err
	}
	return im.store.View(im.Target, s), nil
}

// finish adds an imported session to the report.
func (im importer[S, F, V]) finish(f F, outcome *int) {
	im.Finish(*f.Base(), outcome)
	f.Finish()
}
