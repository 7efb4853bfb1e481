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

// Entry implements layouts.Layout. For the document of a file that is kept whole, it returns the history.
func (l Layout) Entry(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	if sub.IsSession() || sub.Kind != events.KindFile {
		return l.Layout.Entry(ctx, src, root, sub)
	}
	have, err := sessiondir.Load(ctx, src, sub)
	s, ok := have.Session()
	return s, err == nil && ok, err
}

// Location implements layouts.Layout. It returns the file of a history.
func (l Layout) Location(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject) (layouts.Location, error) {
	o, err := sessiondir.Outline(ctx, src, l.Store, root, entry)
	if err == nil && !strings.HasPrefix(entry.ID, prefix) {
		err = fmt.Errorf("%s does not have the name of a history: %w", entry, projector.ErrNotFound)
	}
	if err != nil {
		return layouts.Location{}, err
	}
	return layouts.Location{Path: fileOf(&projector.Session{Subject: entry, Ledger: o.Ledger()})}, nil
}
