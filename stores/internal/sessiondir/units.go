package sessiondir

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Units is what formats.Live is to a layout of which each session is a unit, with all files that
// are kept for it, and each file beside them.
type Units struct {
	Stamp   Stamp
	Exports func(kind string) bool // of sessions that no import brought

	// Session returns the session that a path below the root belongs to, and whether it belongs to
	// any; ok is false where the layout has no file.
	Session func(ctx context.Context, src formats.Source, root formats.Root, path string) (sub events.Subject, ofSession, ok bool)
	// Document names the document of a file beside them.
	Document func(ns, root, path string) events.Subject
}

// Unit is formats.Live's.
func (u Units) Unit(ctx context.Context, src formats.Source, root formats.Root, sub events.Subject) (events.Subject, bool, error) {
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
			return u.UnitAt(ctx, src, root, have.pathIn(root.Name))
		}
	}
	return events.Subject{}, false, nil
}

// Outline opens the session that a unit is. One that has no files in the root is
// projector.ErrNotFound, and a *formats.LeftOutError if it is not archived.
func (u Units) Outline(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (*projector.Outline, error) {
	o, err := src.Loader().Outline(ctx, unit, 0)
	switch {
	case err != nil:
	case unit.Namespace != src.Namespace() || IsArchived(o.Ledger()):
		err = fmt.Errorf("%s has no files in %s: %w", unit, root.Name, projector.ErrNotFound)
	default:
		if reason := u.outside(o.Ledger(), root); reason != "" {
			err = &formats.LeftOutError{Unit: unit, Reason: reason}
		}
	}
	return o, err
}

// outside returns why a session is not shown in a root, "" if it is: one that was imported from
// there, and one that no import brought. A tree shows every session that this layout imported, too.
func (u Units) outside(l *projector.Ledger, root formats.Root) string {
	switch o := l.Origin(); {
	case o != nil && o.Format != u.Stamp.Format:
		return "it was imported as " + o.Format
	case o != nil && o.Root != "" && o.Root != root.Name && !isLive(root):
		return "it was imported from another folder"
	case (o == nil || o.Root == "") && !u.Exports(l.Kind):
		return "layout " + u.Stamp.Format + " has no files for sessions of kind " + l.Kind
	}
	return ""
}

// UnitAt is formats.Live's.
func (u Units) UnitAt(ctx context.Context, src formats.Source, root formats.Root, path string) (events.Subject, bool, error) {
	if !IsPath(path) {
		return events.Subject{}, false, nil
	}
	sub, ofSession, ok := u.Session(ctx, src, root, path)
	switch {
	case ctx.Err() != nil:
		return events.Subject{}, false, ctx.Err()
	case !ok:
		return events.Subject{}, false, nil
	case !ofSession:
		sub = u.Document(src.Namespace(), root.Name, path)
		return sub, sub.Validate() == nil, nil
	case sub.Validate() != nil:
		return events.Subject{}, false, nil
	}
	o, err := src.Loader().Outline(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return sub, true, nil
	}
	return sub, err == nil && u.outside(o.Ledger(), root) == "", err
}

// Removal is formats.Live's.
func (u Units) Removal(ctx context.Context, src formats.Source, unit events.Subject) ([]log.Part, error) {
	if unit.IsSession() {
		return u.Stamp.Archived(ctx, src, unit, nil)
	}
	return u.Stamp.Removed(ctx, src, unit)
}

// SingleFile yields the one file of a unit that is a document.
func SingleFile(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) func(func(formats.File, error) bool) {
	return func(yield func(formats.File, error) bool) { yield(RootFile(ctx, src, root.Name, unit)) }
}

// SessionFiles yields the files of a unit that is a session, as an export does.
func SessionFiles(ctx context.Context, src formats.Source, l formats.Renderer, unit events.Subject, at string) func(func(formats.File, error) bool) {
	return func(yield func(formats.File, error) bool) {
		s, err := src.Loader().Session(ctx, unit, 0)
		if err != nil {
			yield(formats.File{Path: at}, err)
			return
		}
		l.Files(ctx, src, s)(yield)
	}
}
