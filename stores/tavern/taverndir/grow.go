package taverndir

import (
	"context"
	"path"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/stores/internal/foreign"
)

var _ formats.Grower = Layout{}

// Growth implements formats.Grower: what comes to an inbox or a queue is a file of its own.
func (Layout) Growth(ctx context.Context, src formats.Source, _ formats.Root, unit events.Subject, at string, since events.Offset) ([]formats.Addition, bool, error) {
	box := boxKind(unit)
	if box < 0 {
		return nil, false, nil
	}
	o, err := src.Loader().Outline(ctx, unit, 0)
	if err != nil || o.Ledger().Kind != boxes[box].kind || foreign.IsArchived(o.Ledger()) {
		return nil, false, err
	}
	g, ok, err := foreign.GrownSince(ctx, src, o, since)
	if err != nil || !ok {
		return nil, false, err
	}
	had, turns, err := g.Turns(ctx, boxes[box].thread)
	if err != nil || had == 0 || len(turns) > 0 && turns[0].Offset <= seenOf(o.Ledger(), box) {
		return nil, false, err // it may have had no place, or its head says that more was seen
	}
	var list []formats.Addition
	for i, t := range turns {
		name, content, err := turnFile(t, had+i+1, box == 0)
		if err != nil {
			return nil, false, err
		}
		list = append(list, formats.Addition{Path: path.Join(at, boxes[box].sub, name), Data: content, New: true, Mode: formats.FileMode(0)})
	}
	return list, true, nil
}

// boxKind returns which sort of box a session is, by its id; -1: it is none.
func boxKind(unit events.Subject) int {
	for i, b := range boxes {
		if unit.IsSession() && strings.HasPrefix(unit.ID, b.kind+"/") {
			return i
		}
	}
	return -1
}
