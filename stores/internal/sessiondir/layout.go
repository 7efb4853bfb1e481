package sessiondir

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Layout is the layout of a store whose sessions are folders, or files, below a root. Each session, with all files
// kept for it, is an entry, and so is each file beside the sessions. A layout of a store embeds it.
type Layout[S Store[S, F, V], F Found[V], V View] struct{ Store S }

// Name implements layouts.Renderer.
func (l Layout[S, F, V]) Name() string { return l.Store.Stamp().Format }

// Exports implements layouts.Chooser.
func (l Layout[S, F, V]) Exports(kind string) bool { return l.Store.Exports(kind) }

// Sniff implements layouts.Layout. It recognises the root, the folder around it, the folder of the sessions, and the
// folder of one session.
func (l Layout[S, F, V]) Sniff(path string) bool {
	_, err := l.Store.Shape().Locate(path)
	return err == nil
}

// Import implements layouts.Layout. It imports a folder that Sniff recognises, and never writes into it.
//
// A repeated import adds only the changes. A session is refused if the store has it, it differs from the folder,
// and it came from another folder or was changed since its last import. With o.Merge it is not refused. A refused
// session stays as it is; the others are imported. Malformed pieces are problems of the report, with file and line.
// If Import returns an error, it ended early; a new import goes on from there.
func (l Layout[S, F, V]) Import(ctx context.Context, target layouts.Target, path string, o layouts.ImportOptions) (layouts.Report, error) {
	at, err := l.Store.Shape().Locate(path)
	if err != nil {
		return layouts.Report{}, err
	}
	return Import(ctx, target, l.Store.Stamp(), at, o, func(in *Intake) error { return l.bring(ctx, in) })
}

// ImportFrom implements layouts.Layout. The storage is the root.
func (l Layout[S, F, V]) ImportFrom(ctx context.Context, target layouts.Target, st layouts.Storage, root layouts.Root, o layouts.ImportOptions) (layouts.Report, error) {
	return ImportFrom(ctx, target, l.Store.Stamp(), st, root, o, func(in *Intake) error { return l.bring(ctx, in) })
}

// bring imports a root.
func (l Layout[S, F, V]) bring(ctx context.Context, in *Intake) error {
	store, err := l.Store.Begin(in)
	if err != nil {
		return err
	}
	im := importer[S, F, V]{in, store, store.Shape()}
	if im.shape.Files {
		in.noun = "file"
	}
	return im.run(ctx)
}

// Files implements layouts.Renderer.
func (l Layout[S, F, V]) Files(ctx context.Context, src layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		v := l.Store.View(src, s)
		paths, err := v.Paths(ctx)
		if err != nil {
			yield(layouts.File{Path: v.Dir()}, err)
			return
		}
		prefix := v.Dir()
		if prefix != "" {
			prefix += "/"
		}
		Files(ctx, prefix, paths, v.File)(yield)
	}
}

// RootFiles implements layouts.Renderer.
func (l Layout[S, F, V]) RootFiles(ctx context.Context, src layouts.Source, root string) iter.Seq2[layouts.File, error] {
	return ExportRoot(ctx, src, root, l.Store.Shape().isRootFile)
}

// Subject implements layouts.Layout. It returns the session for a file in a session's folder, else the file's
// document.
func (l Layout[S, F, V]) Subject(ctx context.Context, src layouts.Source, root, path string) (events.Subject, bool) {
	if id, ok := l.Store.Beside(path); ok {
		return events.Session(src.Namespace(), id), true
	}
	shape := l.Store.Shape()
	if shape.Files && layouts.IsFileName(path) {
		return l.Store.Named(ctx, src, path)
	}
	rest, in := strings.CutPrefix(path, shape.Sessions+"/")
	dir, inside, below := strings.Cut(rest, "/")
	switch {
	case in && below && inside != "" && layouts.IsFileName(dir):
		return l.Store.Named(ctx, src, dir)
	case slices.Contains(strings.Split(path, "/"), "") || !shape.isRootFile(path):
		return events.Subject{}, false
	}
	return l.Store.Document(src.Namespace(), root, path), true
}

// Entry implements layouts.Layout.
func (l Layout[S, F, V]) Entry(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	switch {
	case sub.Namespace != src.Namespace():
	case sub.IsSession():
		return sub, true, nil
	case sub.Kind == events.KindFile && (isLive(root) || strings.HasPrefix(sub.ID, root.Name+"/")):
		have, err := Load(ctx, src, sub)
		if err != nil {
			return sub, false, err
		}
		if s, ok := have.Session(); ok {
			return s, true, nil
		}
		if strings.HasPrefix(sub.ID, root.Name+"/") {
			return l.EntryAt(ctx, src, root, have.pathIn(root.Name))
		}
	}
	return events.Subject{}, false, nil
}

// isLive reports whether a root is the folder of a tree, which shows the sessions of every root.
func isLive(root layouts.Root) bool { return root.Name == layouts.LiveRoot }

// Location implements layouts.Layout. It returns the folder of a session.
func (l Layout[S, F, V]) Location(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject) (layouts.Location, error) {
	if !entry.IsSession() {
		return RootFileLocation(ctx, src, root.Name, entry)
	}
	o, err := Outline(ctx, src, l.Store, root, entry)
	if err != nil {
		return layouts.Location{}, err
	}
	v := l.Store.View(src, &projector.Session{Subject: o.Subject(), Ledger: o.Ledger()})
	return layouts.Location{Path: v.Dir(), Folder: true}, nil
}

// EntryFiles implements layouts.Layout.
func (l Layout[S, F, V]) EntryFiles(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject, at string) iter.Seq2[layouts.File, error] {
	if entry.IsSession() {
		return SessionFiles(ctx, src, l, entry, at)
	}
	return func(yield func(layouts.File, error) bool) { yield(RootFile(ctx, src, root.Name, entry)) }
}

// SessionFiles yields the files of an entry that is a session, as an export does.
func SessionFiles(ctx context.Context, src layouts.Source, l layouts.Renderer, entry events.Subject, at string) func(func(layouts.File, error) bool) {
	return func(yield func(layouts.File, error) bool) {
		s, err := src.Loader().Session(ctx, entry, 0)
		if err != nil {
			yield(layouts.File{Path: at}, err)
			return
		}
		l.Files(ctx, src, s)(yield)
	}
}

// EntryAt implements layouts.Layout.
func (l Layout[S, F, V]) EntryAt(ctx context.Context, src layouts.Source, root layouts.Root, path string) (events.Subject, bool, error) {
	if !IsPath(path) {
		return events.Subject{}, false, nil
	}
	sub, ok := l.Subject(ctx, src, root.Name, path)
	if ok {
		sub, ok = l.Store.At(ctx, src, path, sub)
	}
	switch {
	case ctx.Err() != nil:
		return events.Subject{}, false, ctx.Err()
	case !ok, sub.Validate() != nil:
		return events.Subject{}, false, nil
	case !sub.IsSession():
		return sub, true, nil
	}
	o, err := src.Loader().Outline(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return sub, true, nil
	}
	return sub, err == nil && outside(o.Ledger(), l.Store, root) == "", err
}

// Removal implements layouts.Layout. It archives a session.
func (l Layout[S, F, V]) Removal(ctx context.Context, src layouts.Source, entry events.Subject) ([]log.Part, error) {
	if entry.IsSession() {
		return l.Store.Stamp().Archived(ctx, src, entry, nil)
	}
	return l.Store.Stamp().Removed(ctx, src, entry)
}

// chooser is the part of a Store that decides which sessions have files.
type chooser interface {
	Stamp() Stamp
	Exports(kind string) bool
}

// Outline opens the session of an entry. If the session has no files in the root, the error is projector.ErrNotFound;
// if it is not archived, a *layouts.LeftOutError.
func Outline(ctx context.Context, src layouts.Source, c chooser, root layouts.Root, entry events.Subject) (*projector.Outline, error) {
	o, err := src.Loader().Outline(ctx, entry, 0)
	switch {
	case err != nil:
	case entry.Namespace != src.Namespace() || IsArchived(o.Ledger()):
		err = fmt.Errorf("%s has no files in %s: %w", entry, root.Name, projector.ErrNotFound)
	default:
		if reason := outside(o.Ledger(), c, root); reason != "" {
			err = &layouts.LeftOutError{Entry: entry, Reason: reason}
		}
	}
	return o, err
}

// outside returns why a root does not show a session, "" if it does. A root shows the sessions that were imported
// from it and those that no import created. A tree also shows all sessions that this layout imported.
func outside(l *projector.Ledger, c chooser, root layouts.Root) string {
	format := c.Stamp().Format
	switch o := l.Origin(); {
	case o != nil && o.Format != format:
		return "it was imported as " + o.Format
	case o != nil && o.Root != "" && o.Root != root.Name && !isLive(root):
		return "it was imported from another folder"
	case (o == nil || o.Root == "") && !c.Exports(l.Kind):
		return "layout " + format + " has no files for sessions of kind " + l.Kind
	}
	return ""
}
