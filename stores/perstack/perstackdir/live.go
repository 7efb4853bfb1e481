package perstackdir

import (
	"context"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// units are the jobs, and the files beside them. What may hold secrets has no place there.
var units = sessiondir.Units{
	Stamp:   stamp,
	Exports: Layout{}.Exports,
	Session: func(ctx context.Context, src formats.Source, root formats.Root, name string) (events.Subject, bool, bool) {
		sub, ok := Layout{}.Subject(ctx, src, root.Name, name)
		if !ok || !sub.IsSession() {
			return sub, false, ok && !isPrivate(name)
		}
		dir := strings.Split(name, "/")[1]
		for _, id := range []string{dir, sessiondir.KeyOf(dir)} { // its files may say that it is no name that was made of an id
			other := events.Session(src.Namespace(), shape.SessionID(id))
			if o, err := src.Loader().Outline(ctx, other, 0); err == nil && folderOf(o) == jobsName+"/"+dir {
				return other, true, true
			}
		}
		return sub, true, true
	},
	Document: documentOf,
}

func folderOf(o *projector.Outline) string {
	return dirOf(&projector.Session{Subject: o.Subject(), Ledger: o.Ledger()})
}

// ImportFrom implements formats.Live. What is in the storage is the folder perstack.
func (l Layout) ImportFrom(ctx context.Context, target formats.Target, st formats.Storage, root formats.Root, o formats.ImportOptions) (formats.Report, error) {
	keys, err := l.keysFor(o)
	if err != nil {
		return formats.Report{}, err
	}
	return sessiondir.ImportFrom(ctx, target, stamp, st, root, o, keys.bringer(ctx))
}

// Unit implements formats.Live. What is sealed is its job's.
func (Layout) Unit(ctx context.Context, src formats.Source, root formats.Root, sub events.Subject) (events.Subject, bool, error) {
	if sub.IsSession() {
		_, ok := shape.JobID(sub.ID)
		return sub, ok && sub.Namespace == src.Namespace(), nil
	}
	if sub.Kind != sealed.Kind || sub.Namespace != src.Namespace() {
		return units.Unit(ctx, src, root, sub)
	}
	have, err := sessiondir.Load(ctx, src, sub)
	if s, ok := have.Session(); ok || err != nil {
		return s, ok, err
	}
	if path, ok := strings.CutPrefix(sub.ID, root.Name+"/"+jobsName+"/"); ok {
		return units.UnitAt(ctx, src, root, jobsName+"/"+path)
	}
	escaped, _, _ := strings.Cut(sub.ID, "/")
	job, err := events.UnescapeID(escaped)
	return events.Session(src.Namespace(), shape.SessionID(job)), err == nil, nil //nolint:nilerr // it is no job's
}

// Place implements formats.Live: the folder of a job.
func (Layout) Place(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (formats.Place, error) {
	if !unit.IsSession() {
		return sessiondir.PlaceOfRootFile(ctx, src, root.Name, unit)
	}
	o, err := units.Outline(ctx, src, root, unit)
	if err != nil {
		return formats.Place{}, err
	}
	return formats.Place{Path: folderOf(o), Folder: true}, nil
}

// UnitFiles implements formats.Live.
func (l Layout) UnitFiles(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject, at string) iter.Seq2[formats.File, error] {
	if !unit.IsSession() {
		return sessiondir.SingleFile(ctx, src, root, unit)
	}
	return sessiondir.SessionFiles(ctx, src, l, unit, at)
}

// UnitAt implements formats.Live.
func (Layout) UnitAt(ctx context.Context, src formats.Source, root formats.Root, path string) (events.Subject, bool, error) {
	return units.UnitAt(ctx, src, root, path)
}

// Removal implements formats.Live. A job is archived.
func (Layout) Removal(ctx context.Context, src formats.Source, unit events.Subject) ([]log.Part, error) {
	return units.Removal(ctx, src, unit)
}
