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

// Wants implements projector.Selective: entries are rendered at the commit, not folded record by record.
func (t *Tree) Wants(events.Subject) bool { return false }

// Begin implements projector.View.
func (t *Tree) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(ctx); err != nil {
		return projector.Cursor{}, nil, err
	}
	t.dirty = make(map[events.Subject]touched) // a cleared map would keep its largest size
	return t.cursor, nil, nil
}

// load reads the manifest, and schedules the examination of files that may have changed since. The caller holds mu.
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
	for sub, u := range t.entries {
		t.names.add(u, 1)
		if sub.Kind == KindConflict && u.path == "" { // kept for a question that was open when the process ended
			t.writeAgain(sub)
			t.again = t.c.Now()
		}
	}
	if err = cmp.Or(t.recover(ctx), ctx.Err()); err != nil { // an interrupted start is repeated
		t.clear()
	}
	return err
}

// reassignPaths schedules a look-up of every entry in the log, because the tree shows another part of it. Entries that are
// no longer part lose their files. The caller holds mu.
func (t *Tree) reassignPaths(ctx context.Context) error {
	t.part, t.cursor = t.c.Part, projector.Cursor{}
	t.changed.cursor = &t.cursor
	for sub := range t.entries {
		t.writeAgain(sub)
	}
	return t.save(ctx)
}

// Apply implements projector.View.
func (t *Tree) Apply(ctx context.Context, f projector.Fact) error {
	if f.Subject.Kind == events.KindUnit || f.Subject.Namespace != t.c.Target.Namespace() || t.c.Way == In {
		return nil
	}
	sub, ok, err := t.entryOf(ctx, f.Offset, f.Subject)
	if err != nil || !ok {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u, isNew := t.entries[sub], false
	if u == nil {
		u = &entry{first: events.MaxOffset}
		t.entries[sub] = u
	}
	if u.first > f.Offset {
		u.first, isNew = f.Offset, true
		t.changed.entry(sub)
	}
	t.dirty[sub] = t.dirty[sub].with(f.Subject, sub, isNew)
	return nil
}

// touched describes the uncommitted records of an entry.
type touched struct {
	others []events.Subject // other subjects with such records
	whole  bool             // the effect of the records cannot be narrowed by subject
}

// maxOthers bounds the other subjects that are listed.
const maxOthers = 64

// with returns d with another record.
func (d touched) with(of, sub events.Subject, isNew bool) touched {
	switch {
	case d.whole || of == sub && !isNew || slices.Contains(d.others, of):
		return d
	case isNew || len(d.others) == maxOthers:
		return touched{whole: true}
	}
	return touched{others: append(d.others, of)}
}

// entryOf returns the entry of a session or document.
func (t *Tree) entryOf(ctx context.Context, at events.Offset, sub events.Subject) (events.Subject, bool, error) {
	if sub.Kind == KindConflict {
		return sub, true, nil
	}
	return t.c.Layout.Entry(ctx, t.as(at), t.c.Root, sub)
}

// Quarantine implements projector.View. The tree itself retries failures.
func (t *Tree) Quarantine(projector.Quarantine) {}

// Held implements projector.View.
func (t *Tree) Held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.dirty)) * 256
}

// Commit implements projector.View: it updates the files to the log at the cursor.
func (t *Tree) Commit(ctx context.Context, c projector.Cursor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isAway() || t.asking != nil {
		return t.asking
	}
	if !t.met && c.Offset < t.start {
		// Files that are not in the manifest may have later content of the log. So none is written before the final
		// content is known.
		for sub := range t.dirty {
			t.writeAgain(sub)
		}
	} else if err := t.catchUp(ctx, c.Offset); err != nil {
		return err
	}
	t.dirty = make(map[events.Subject]touched) // a cleared map would keep its largest size
	// The next save commits the cursor. Until then the files are newer than the manifest, but it contains the intents.
	reached("before cursor")
	if !t.knowsLog() {
		t.stir()
	}
	t.cursor, t.changed.cursor = c, &c
	return t.save(ctx)
}

// atOnce is the number of entries that are rendered at a time, in memory.
const atOnce = 256

// catchUp writes the files of the applied records as of an offset. The caller holds mu.
func (t *Tree) catchUp(ctx context.Context, at events.Offset) error {
	if t.c.Way == In {
		return nil
	}
	var list []events.Subject
	for sub := range t.dirty {
		if t.entries[sub].at < at || t.redo[sub] {
			list = append(list, sub)
		}
	}
	if !t.met {
		for sub := range t.redo {
			if _, is := t.dirty[sub]; !is && t.entries[sub] != nil && t.stuck[sub] == nil {
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

// sorted sorts entries by their first record. The caller holds mu.
func (t *Tree) sorted(list []events.Subject) []events.Subject {
	slices.SortFunc(list, func(a, b events.Subject) int {
		if x, y := t.entries[a].first, t.entries[b].first; x != y {
			return cmp.Compare(x, y)
		}
		return strings.Compare(a.String(), b.String())
	})
	return list
}

// Reset implements projector.View: all files count as unknown.
func (t *Tree) Reset(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	if err := t.manifest.reset(ctx); err != nil {
		return err
	}
	return t.load(ctx)
}

// Forget implements projector.View: the next commit writes the files of the subject again, whatever the log has.
func (t *Tree) Forget(ctx context.Context, sub events.Subject) error {
	if sub.Namespace != t.c.Target.Namespace() {
		return nil
	}
	sub, ok, err := t.entryOf(ctx, 0, sub)
	if err != nil || !ok {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[sub] != nil {
		t.writeAgain(sub)
	}
	return nil
}

// Room implements projector.Runner.Room: nothing is written while the tree asks.
func (t *Tree) Room() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking != nil {
		return t.asking
	}
	return nil
}

// Problem returns why the files of a session or document do not show the log, as an *Error. nil means that they do, as
// far as the log was read.
func (t *Tree) Problem(ctx context.Context, sub events.Subject) error {
	sub, ok, err := t.entryOf(ctx, 0, sub)
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

// isGone reports whether an entry has no content.
func isGone(err error) bool { return errors.Is(err, projector.ErrNotFound) }
