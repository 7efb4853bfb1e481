package ailoopdir

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Unit implements formats.Layout. The document of a file that is kept whole is its history's.
func (l Layout) Unit(ctx context.Context, src formats.Source, root formats.Root, sub events.Subject) (events.Subject, bool, error) {
	if sub.IsSession() || sub.Kind != events.KindFile {
		return l.Layout.Unit(ctx, src, root, sub)
	}
	have, err := sessiondir.Load(ctx, src, sub)
	s, ok := have.Session()
	return s, err == nil && ok, err
}

// Place implements formats.Layout: the file of a history.
func (l Layout) Place(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (formats.Place, error) {
	o, err := sessiondir.Outline(ctx, src, l.Store, root, unit)
	if err == nil && !strings.HasPrefix(unit.ID, prefix) {
		err = fmt.Errorf("%s is not called as a history is: %w", unit, projector.ErrNotFound)
	}
	if err != nil {
		return formats.Place{}, err
	}
	return formats.Place{Path: fileOf(&projector.Session{Subject: unit, Ledger: o.Ledger()})}, nil
}
