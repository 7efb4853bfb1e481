package ailoopdir

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Unit implements layouts.Layout. The document of a file that is kept whole is its history's.
func (l Layout) Unit(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	if sub.IsSession() || sub.Kind != events.KindFile {
		return l.Layout.Unit(ctx, src, root, sub)
	}
	have, err := sessiondir.Load(ctx, src, sub)
	s, ok := have.Session()
	return s, err == nil && ok, err
}

// Place implements layouts.Layout: the file of a history.
func (l Layout) Place(ctx context.Context, src layouts.Source, root layouts.Root, unit events.Subject) (layouts.Place, error) {
	o, err := sessiondir.Outline(ctx, src, l.Store, root, unit)
	if err == nil && !strings.HasPrefix(unit.ID, prefix) {
		err = fmt.Errorf("%s is not called as a history is: %w", unit, projector.ErrNotFound)
	}
	if err != nil {
		return layouts.Place{}, err
	}
	return layouts.Place{Path: fileOf(&projector.Session{Subject: unit, Ledger: o.Ledger()})}, nil
}
