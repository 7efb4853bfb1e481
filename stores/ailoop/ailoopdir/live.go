package ailoopdir

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// units are the histories. There are no files beside them.
var units = sessiondir.Units{
	Stamp:   stamp,
	Exports: Layout{}.Exports,
	Session: func(ctx context.Context, src formats.Source, root formats.Root, name string) (events.Subject, bool, bool) {
		sub, ok := Layout{}.Subject(ctx, src, root.Name, name)
		return sub, true, ok && (strings.HasSuffix(name, suffix) || isFileOf(ctx, src, sub, name))
	},
}

// isFileOf reports whether a history is there, and its file has a name, whatever that ends in.
func isFileOf(ctx context.Context, src formats.Source, sub events.Subject, name string) bool {
	o, err := src.Loader().Outline(ctx, sub, 0)
	return err == nil && fileOf(&projector.Session{Subject: sub, Ledger: o.Ledger()}) == name
}

// Unit implements formats.Live. The document of a file that is kept whole is its history's.
func (Layout) Unit(ctx context.Context, src formats.Source, root formats.Root, sub events.Subject) (events.Subject, bool, error) {
	if sub.IsSession() || sub.Kind != events.KindFile {
		return units.Unit(ctx, src, root, sub)
	}
	have, err := sessiondir.Load(ctx, src, sub)
	s, ok := have.Session()
	return s, err == nil && ok, err
}

// Place implements formats.Live: the file of a history.
func (Layout) Place(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (formats.Place, error) {
	o, err := units.Outline(ctx, src, root, unit)
	if err == nil && !strings.HasPrefix(unit.ID, prefix) {
		err = fmt.Errorf("%s is not called as a history is: %w", unit, projector.ErrNotFound)
	}
	if err != nil {
		return formats.Place{}, err
	}
	return formats.Place{Path: fileOf(&projector.Session{Subject: unit, Ledger: o.Ledger()})}, nil
}

// UnitFiles implements formats.Live.
func (l Layout) UnitFiles(ctx context.Context, src formats.Source, _ formats.Root, unit events.Subject, at string) iter.Seq2[formats.File, error] {
	return sessiondir.SessionFiles(ctx, src, l, unit, at)
}

// UnitAt implements formats.Live.
func (Layout) UnitAt(ctx context.Context, src formats.Source, root formats.Root, name string) (events.Subject, bool, error) {
	return units.UnitAt(ctx, src, root, name)
}

// Removal implements formats.Live. A history is archived.
func (Layout) Removal(ctx context.Context, src formats.Source, unit events.Subject) ([]log.Part, error) {
	if !unit.IsSession() {
		return nil, nil
	}
	return units.Removal(ctx, src, unit)
}
