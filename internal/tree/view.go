package tree

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

var (
	_ projector.View      = (*Tree)(nil)
	_ projector.Selective = (*Tree)(nil)
)

// Name implements projector.View.
func (t *Tree) Name() string { return "tree:" + t.c.Name }

// Wants implements projector.Selective: what changed is rendered when it is written, and not
// folded record by record.
func (t *Tree) Wants(events.Subject) bool { return false }

// Begin implements projector.View.
func (t *Tree) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(ctx); err != nil {
		return projector.Cursor{}, nil, err
	}
	t.dirty = make(map[events.Subject]touched) // cleared, it would be as large as it ever was
	return t.cursor, nil, nil
}

// load reads the book, and has every file be looked at that may have changed since. The
// caller holds mu.
func (t *Tree) load(ctx context.Context) error {
	if t.loaded {
		return nil
	}
	s, err := t.manifest.load(ctx)
	if err != nil {
		return err
	}
	if t.start, err = t.c.Head(ctx); err != nil {
		return err
	}
	t.state, t.loaded = s, true
	if s.part != t.c.Part {
		if err := t.reassignPaths(ctx); err != nil {
			t.clear()
			return err
		}
	}
	for path, f := range t.files {
		t.index(path, f)
	}
	for sub, u := range t.units {
		t.names.add(u, 1)
		if sub.Kind == KindConflict && u.path == "" { // kept for a question that was not answered before the process ended
			t.writeAgain(sub)
			t.again = t.c.Now()
		}
	}
	err = t.recover(ctx)
	if err != nil {
		t.clear()
	}
	return err
}

// reassignPaths has every unit be looked for in the log, and its files go if it has none any more:
// the tree shows another part of it than before. The caller holds mu.
func (t *Tree) reassignPaths(ctx context.Context) error {
	t.part, t.cursor = t.c.Part, projector.Cursor{}
	t.changed.cursor = &t.cursor
	for sub := range t.units {
		t.writeAgain(sub)
	}
	return t.save(ctx)
}

// Apply implements projector.View.
func (t *Tree) Apply(ctx context.Context, f projector.Fact) error {
	if f.Subject.Kind == events.KindUnit || f.Subject.Namespace != t.c.Target.Namespace() || t.c.Way == In {
		return nil
	}
	sub, ok, err := t.unitOf(ctx, f.Offset, f.Subject)
	if err != nil || !ok {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u, isNew := t.units[sub], false
	if u == nil {
		u = &unit{first: events.MaxOffset}
		t.units[sub] = u
	}
	if u.first > f.Offset {
		u.first, isNew = f.Offset, true
		t.changed.unit(sub)
	}
	t.dirty[sub] = t.dirty[sub].with(f.Subject, sub, isNew)
	return nil
}

// touched is what was applied of a unit and not committed.
type touched struct {
	others []events.Subject // other subjects that records were of
	whole  bool             // what the records change is not known by their subjects
}

// maxOthers bounds the other subjects that are named.
const maxOthers = 64

// with is it with a record more.
func (d touched) with(of, unit events.Subject, isNew bool) touched {
	switch {
	case d.whole || of == unit && !isNew || slices.Contains(d.others, of):
		return d
	case isNew || len(d.others) == maxOthers:
		return touched{whole: true}
	}
	return touched{others: append(d.others, of)}
}

// unitOf returns the unit of a session or document.
func (t *Tree) unitOf(ctx context.Context, at events.Offset, sub events.Subject) (events.Subject, bool, error) {
	if sub.Kind == KindConflict {
		return sub, true, nil
	}
	return t.c.Layout.Entry(ctx, t.as(at), t.c.Root, sub)
}

// Quarantine implements projector.View. What cannot be shown is tried again by the tree itself.
func (t *Tree) Quarantine(projector.Quarantine) {}

// Held implements projector.View.
func (t *Tree) Held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.dirty)) * 256
}

// Commit implements projector.View: the files show the log as of the cursor.
func (t *Tree) Commit(ctx context.Context, c projector.Cursor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isAway() || t.asking != nil {
		return t.asking
	}
	if !t.met && c.Offset < t.start {
		// Of files that are there and that the tree does not remember, some may be as the log has
		// it later on: none is written before it is known what they are to be.
		for sub := range t.dirty {
			t.writeAgain(sub)
		}
	} else if err := t.catchUp(ctx, c.Offset); err != nil {
		return err
	}
	t.dirty = make(map[events.Subject]touched) // cleared, it would be as large as it ever was
	// Committed with the next save: until then the files are newer than the book, which has
	// said before what they would be.
	reached("before cursor")
	if !t.knowsLog() {
		t.stir()
	}
	t.cursor, t.changed.cursor = c, &c
	return t.save(ctx)
}

// atOnce is how many units are shown at a time: their files are in memory.
const atOnce = 256

// catchUp shows what was applied as of an offset. The caller holds mu.
func (t *Tree) catchUp(ctx context.Context, at events.Offset) error {
	if t.c.Way == In {
		return nil
	}
	var list []events.Subject
	for sub := range t.dirty {
		if t.units[sub].at < at || t.redo[sub] {
			list = append(list, sub)
		}
	}
	if !t.met {
		for sub := range t.redo {
			if _, is := t.dirty[sub]; !is && t.units[sub] != nil && t.stuck[sub] == nil {
				list = append(list, sub)
			}
		}
	}
	for part := range slices.Chunk(t.sorted(list), atOnce) {
		grown, rest := t.grown(ctx, part, at)
		if err := t.writeOut(ctx, rest, grown, at); err != nil {
			return err
		}
	}
	return nil
}

// sorted has units in the order in which they began. The caller holds mu.
func (t *Tree) sorted(list []events.Subject) []events.Subject {
	slices.SortFunc(list, func(a, b events.Subject) int {
		if x, y := t.units[a].first, t.units[b].first; x != y {
			return cmp.Compare(x, y)
		}
		return strings.Compare(a.String(), b.String())
	})
	return list
}

// Reset implements projector.View: the files are looked at as those of somebody else.
func (t *Tree) Reset(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	if err := t.manifest.reset(ctx); err != nil {
		return err
	}
	return t.load(ctx)
}

// Forget implements projector.View.
func (t *Tree) Forget(context.Context, events.Subject) error { return nil }

// Room implements projector.Runner's: nothing is written while the tree asks.
func (t *Tree) Room() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking != nil {
		return t.asking
	}
	return nil
}

// Problem returns why the files of a session or document do not show what is in the log, a
// *Error; nil: they do as far as the log was read.
func (t *Tree) Problem(ctx context.Context, sub events.Subject) error {
	sub, ok, err := t.unitOf(ctx, 0, sub)
	if err != nil || !ok {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.stuck[sub]; err != nil {
		return err
	}
	return nil
}

// isGone reports whether there is nothing to show of a unit.
func isGone(err error) bool { return errors.Is(err, projector.ErrNotFound) }
