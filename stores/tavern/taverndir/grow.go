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

// grownBox is what is known of a box that grows.
type grownBox struct {
	seen  events.Offset // up to which somebody saw it
	turns foreign.Grown
}

// Growth implements formats.Grower: what comes to an inbox or a queue is a file of its own.
func (l Layout) Growth(ctx context.Context, src formats.Source, _ formats.Root, unit events.Subject, at string, since events.Offset, known any) (formats.Growth, bool, error) {
	box := boxKind(unit)
	if box < 0 {
		return formats.Growth{}, false, nil
	}
	if has, err := l.has(ctx, src, unit); err != nil || !has {
		return formats.Growth{}, false, err // its agent may have become personal
	}
	g, ok := known.(grownBox)
	var err error
	if ok {
		g.turns, ok, err = g.turns.Next(ctx, src, unit, since, boxes[box].thread)
	}
	if err == nil && !ok {
		g, ok, err = boxGrownSince(ctx, src, unit, box, since)
	}
	turns := g.turns.Turns
	if err != nil || !ok || g.turns.Had == 0 || len(turns) > 0 && turns[0].Offset <= g.seen {
		return formats.Growth{}, false, err // it may have had no place, or its head says that more was seen
	}
	var list []formats.Addition
	for i, t := range turns {
		name, content, err := turnFile(t, g.turns.Had+i+1, box == 0)
		if err != nil {
			return formats.Growth{}, false, err
		}
		list = append(list, formats.Addition{Path: path.Join(at, boxes[box].sub, name), Data: content, New: true, Mode: formats.FileMode(0)})
	}
	g.turns = g.turns.Known()
	return formats.Growth{Added: list, Known: g}, true, nil
}

func boxGrownSince(ctx context.Context, src formats.Source, unit events.Subject, box int, since events.Offset) (g grownBox, ok bool, err error) {
	o, err := src.Loader().Outline(ctx, unit, 0)
	if err != nil || o.Ledger().Kind != boxes[box].kind || foreign.IsArchived(o.Ledger()) {
		return g, false, err
	}
	g.seen = seenOf(o.Ledger(), box)
	g.turns, ok, err = foreign.GrownSince(ctx, src, o, since, boxes[box].thread)
	return g, ok, err
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
