package taverndir

import (
	"context"
	"hash/maphash"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

var _ layouts.Grower = Layout{}

// grownBox is the state of a growing box between calls.
type grownBox struct {
	seen  events.Offset // up to which it was seen
	turns sessiondir.Grown
	items *itemPositions // of a queue; nil: not read yet
}

// itemPositions has the positions of a queue's items among its turns.
type itemPositions struct {
	seed maphash.Seed
	of   map[uint64]int // hash of an item's id -> turn, from 0
	upto int            // number of turns that were read
}

// maxPositions bounds the items whose positions are kept, some 20 bytes each. If a longer queue has a change of an
// item, all its files are written.
const maxPositions = 1 << 16

// Growth implements layouts.Grower. A new turn of an inbox or a queue is a new file, and a change of an item changes
// that item's file alone.
func (l Layout) Growth(ctx context.Context, src layouts.Source, _ layouts.Root, entry events.Subject, at string, since events.Offset, others []events.Subject, known any) (layouts.Growth, bool, error) {
	box := boxKind(entry)
	if box < 0 {
		return layouts.Growth{}, false, nil
	}
	if has, err := l.has(ctx, src, entry); err != nil || !has {
		return layouts.Growth{}, false, err // its agent may have become personal
	}
	g, ok := known.(grownBox)
	var err error
	if ok {
		g.turns, ok, err = g.turns.Next(ctx, src, entry, since, boxes[box].thread)
	}
	if err == nil && !ok {
		g, ok, err = boxGrownSince(ctx, src, entry, box, since)
	}
	turns := g.turns.Turns
	if err != nil || !ok || g.turns.Had == 0 || len(turns) > 0 && turns[0].Offset <= g.seen {
		return layouts.Growth{}, false, err // it may have had no location, or its head has a newer read mark
	}
	changed, histories, ok, err := g.changed(ctx, src, entry, box, others)
	if err != nil || !ok {
		return layouts.Growth{}, false, err
	}
	for i, t := range turns {
		changed[g.turns.Had+i] = t
	}
	list, err := boxAdditions(changed, histories, box, at)
	if err != nil {
		return layouts.Growth{}, false, err
	}
	g.turns = g.turns.Known()
	return layouts.Growth{Added: list, Known: g}, true, nil
}

// boxAdditions returns the files of some turns of a box, by number.
func boxAdditions(turns map[int]projector.Turn, histories map[int]itemHistory, box int, at string) (list []layouts.Addition, err error) {
	for _, n := range slices.Sorted(maps.Keys(turns)) {
		name, content, err := turnFile(turns[n], n+1, box == 0, histories[n])
		if err != nil {
			return nil, err
		}
		list = append(list, layouts.Addition{Path: path.Join(at, boxes[box].sub, name), Data: content, New: true, Mode: layouts.FileMode(0)})
	}
	return list, nil
}

// changed returns the turns of changed items, with their histories, by number. It returns false if they are unknown.
func (g *grownBox) changed(ctx context.Context, src layouts.Source, entry events.Subject, box int, others []events.Subject) (map[int]projector.Turn, map[int]itemHistory, bool, error) {
	turns, histories := make(map[int]projector.Turn), make(map[int]itemHistory)
	if len(others) == 0 {
		return turns, histories, true, nil
	}
	o, err := src.Loader().Outline(ctx, entry, 0)
	if err != nil || boxes[box].kind != events.KindQueue || o.Len(boxes[box].thread) > maxPositions {
		return nil, nil, false, err
	}
	if err := g.locate(ctx, o, boxes[box].thread); err != nil {
		return nil, nil, false, err
	}
	queue := strings.TrimPrefix(entry.ID, projector.QueueSession(""))
	for _, sub := range others {
		_, id, isItem := projector.ItemOf(sub.ID)
		n, there := g.items.find(id)
		if !isItem {
			return nil, nil, false, nil
		}
		if !there {
			continue // no item has the id, so no file changes
		}
		one, err := o.Turns(ctx, boxes[box].thread, n, n+1)
		if err != nil {
			return nil, nil, false, err
		}
		i, ok := itemOf(queue, one[0])
		if !ok || i.ID != id { // two ids with the same hash
			return nil, nil, false, nil
		}
		all, err := historiesOf(ctx, src, queue, o.Ledger(), src.Loader().Upto, []*projector.QueueItem{i})
		if err != nil {
			return nil, nil, false, err
		}
		turns[n], histories[n] = one[0], all.of(id)
	}
	return turns, histories, true, nil
}

// locate finds the positions of items that were queued since the last call.
func (g *grownBox) locate(ctx context.Context, o *projector.Outline, thread string) error {
	if g.items == nil || g.items.upto > o.Len(thread) {
		g.items = &itemPositions{seed: maphash.MakeSeed(), of: make(map[uint64]int)}
	}
	turns, err := o.Turns(ctx, thread, g.items.upto, o.Len(thread))
	if err != nil {
		return err
	}
	queue := strings.TrimPrefix(o.Subject().ID, projector.QueueSession(""))
	for _, t := range turns {
		if i, ok := itemOf(queue, t); ok {
			if _, there := g.items.find(i.ID); !there {
				g.items.of[maphash.String(g.items.seed, i.ID)] = g.items.upto
			}
		}
		g.items.upto++
	}
	return nil
}

func (p *itemPositions) find(id string) (n int, ok bool) {
	n, ok = p.of[maphash.String(p.seed, id)]
	return n, ok
}

func boxGrownSince(ctx context.Context, src layouts.Source, entry events.Subject, box int, since events.Offset) (g grownBox, ok bool, err error) {
	o, err := src.Loader().Outline(ctx, entry, 0)
	if err != nil || o.Ledger().Kind != boxes[box].kind || sessiondir.IsArchived(o.Ledger()) {
		return g, false, err
	}
	g.seen = seenOf(o.Ledger(), box)
	g.turns, ok, err = sessiondir.GrownSince(ctx, src, o, since, boxes[box].thread)
	return g, ok, err
}

// boxKind returns the index of a session's box by its id, or -1.
func boxKind(entry events.Subject) int {
	for i, b := range boxes {
		if entry.IsSession() && strings.HasPrefix(entry.ID, b.kind+"/") {
			return i
		}
	}
	return -1
}
