package tallydir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Import brings a folder into a store: a folder that holds conversations/ or
// .tally/conversations/, or the folder of one conversation. It never writes into
// the folder.
//
// Importing again adds what has changed and nothing else. A session that exists
// already, differs from the folder, and came from another place or was changed
// since its last import is refused, unless o.Merge; it is left as it is and the
// rest goes in. Malformed pieces are problems of the report, with file and line.
// An error means that the import ended early; importing again goes on from there.
func Import(ctx context.Context, target formats.Target, path string, o formats.ImportOptions) (formats.Report, error) {
	at, err := locate(path)
	if err != nil {
		return formats.Report{}, err
	}
	return sessiondir.Import(ctx, target, stamp, at, o, bringer(ctx))
}

// bringer brings in what a folder holds, or a storage.
func bringer(ctx context.Context) func(*sessiondir.Intake) error {
	return func(in *sessiondir.Intake) error {
		if in.Dry != nil {
			in.Dry.Brief = true
		}
		return importer{Intake: in}.run(ctx)
	}
}

// importer imports a root, or one of its conversations.
type importer struct {
	*sessiondir.Intake
	turns *turns // among its conversations; nil before they are begun
}

func (im importer) run(ctx context.Context) error {
	units, err := im.Units(conversations)
	if err != nil {
		return err
	}
	if err := im.Begin(ctx, units, im.birthOf); err != nil {
		return err
	}
	if err := im.conversations(ctx, units); err != nil {
		return err
	}
	if im.IsPart() {
		return ctx.Err()
	}
	return im.rootFiles(ctx)
}

// conversations imports several at the same time: while one waits for the disk,
// others are read. What they report is put together in the order of their names.
func (im importer) conversations(ctx context.Context, units []sessiondir.Unit) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var group sync.WaitGroup
	var next atomic.Int64
	reports := make([]formats.Report, len(units))
	turns := newTurns()
	for range min(most, len(units)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(units); i = int(next.Add(1)) - 1 {
				one := importer{im.Part(), turns}
				if err := one.folder(work, units[i]); err != nil {
					stop(err) // the others end by it
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

// birthOf reads what a folder says of its beginning.
func (im importer) birthOf(u sessiondir.Unit) string {
	f := &folder{Folder: im.Folder(u)}
	file, err := im.Tree.File(path.Join(u.Dir, metaName))
	if err != nil || f.scanJSON(&source{File: file, place: place{part: partMeta}}) != nil {
		return ""
	}
	return f.birth
}

// folder imports one conversation.
func (im importer) folder(ctx context.Context, u sessiondir.Unit) error {
	err := sessiondir.Retry(ctx, func(again bool) error {
		f := &folder{Folder: im.Folder(u)}
		if err := f.list(); err != nil {
			return err
		}
		if len(f.files) == 0 {
			im.Skipped(f.Links...)
			return nil
		}
		if err := im.identify(f); err != nil {
			return err
		}
		release, err := im.turns.hold(ctx, f.size)
		if err != nil {
			return err
		}
		defer release()
		return im.session(ctx, f, again)
	})
	return im.Settle(ctx, u.Dir, err)
}

// identify finds the id of the session that a folder is.
func (im importer) identify(f *folder) error {
	if formats.IsShortened(f.name()) {
		f.ID = im.fullID(f)
	}
	if other := formats.FileName(f.ID); other != f.name() {
		if im.Tree.IsDir(path.Join(conversations, other)) {
			return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q and %q are folders of the same session", f.name(), other)}
		}
	}
	return events.Session(im.Target.Namespace(), f.ID).Validate()
}

// session brings one scanned folder in.
func (im importer) session(ctx context.Context, f *folder, again bool) error {
	v := view{src: im.Target, s: projector.NewSession(events.Session(im.Target.Namespace(), f.ID))}
	if im.There[f.ID] || again {
		s, err := im.Load(ctx, f.ID)
		if err != nil {
			return err
		}
		v.s = s
	}
	if err := im.turns.scan(ctx, func() error { return f.scan(v.s.Threads) }); err != nil {
		return err
	}
	return im.Bring(ctx, v.s, sessiondir.Work{ID: f.ID, Place: f.Dir, Birth: f.birth,
		Same: func() (bool, error) {
			differing, err := v.differing(ctx, f)
			return len(differing) == 0, err
		},
		Plan: func(origin *events.Origin) (sessiondir.Plan, error) {
			p, err := makePlan(ctx, v, f, origin)
			return sessiondir.Plan{Contradicts: p.contradicts, Apply: func() error { return im.carryOut(ctx, f, p) }}, err
		},
		Finish: func(outcome *int) { im.finish(f, outcome) },
	})
}

// carryOut appends what a plan comes to, and looks whether the files come out. What a dry
// run would append cannot be read back.
func (im importer) carryOut(ctx context.Context, f *folder, p *plan) error {
	p.recall = p.fresh && f.small() && im.Dry == nil
	if err := p.apply(ctx, im.Intake); err != nil || im.Dry != nil {
		return err
	}
	return im.verify(ctx, f, p)
}

// finish reports a conversation that was dealt with.
func (im importer) finish(f *folder, outcome *int) {
	im.Finish(f.Folder, outcome)
	for _, s := range f.files {
		im.Report.Files.Add(sessiondir.WayOf(!s.exact(), s.Format))
	}
}

// rootFiles keeps the files that belong to no conversation, and takes away those
// that are gone.
func (im importer) rootFiles(ctx context.Context) error {
	seen := make(map[string]bool)
	for _, dir := range []string{".", conversations} {
		entries, err := im.Tree.Entries(dir)
		if errors.Is(err, fs.ErrNotExist) && dir == conversations {
			continue // the storage has none
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			full := path.Join(dir, e.Name)
			switch {
			case e.Dir:
				if dir == "." && e.Name != conversations {
					im.Report.Notes = append(im.Report.Notes, formats.Problem{File: full, Reason: "a folder that is not part of the layout: not imported"})
				}
			case sessiondir.IsOdd(e):
				im.Skipped(full)
			default:
				seen[full] = true
				if _, err := im.KeepRootFile(ctx, full, documentOf); err != nil {
					return err
				}
			}
		}
	}
	return im.DropRootFiles(ctx, seen, isRootFile)
}
