package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// BulkError says that so much changed at once that the tree stands still, in both directions,
// until somebody says what is to become of it: see Accept and Restore.
type BulkError struct {
	Tree    string
	Changed int      // files that were written
	Gone    int      // files that are not there any more
	Emptied int      // files that have nothing in them any more
	Of      int      // files that the tree has
	Empty   bool     // there is nothing at all where the tree is
	Moved   bool     // its folder is gone, or another one is there
	Sample  []string // some of the paths

	many bool // it is about more than the limit, so that nothing of it is taken in
}

func (e *BulkError) Error() string {
	what := fmt.Sprintf("of %d files, at once, %d changed, %d are gone and %d were emptied", e.Of, e.Changed, e.Gone, e.Emptied)
	if e.Empty {
		what = fmt.Sprintf("its folder is empty, and had %d files", e.Of)
	}
	if e.Moved {
		what = fmt.Sprintf("its folder with %d files is not there any more, or another one is", e.Of)
	}
	return fmt.Sprintf("tree %s stands still: %s: accept or restore", e.Tree, what)
}

// recently is an edit that was taken in.
type recently struct {
	path string
	at   time.Time
}

// together is how long changes count as made at once.
const together = 2 * time.Second

// few is how many of a tree's files may change at once however few there are.
const few = 3

// isMany reports whether that many changes are more than may be taken in without a question.
func (t *Tree) isMany(all int) bool { return t.c.BulkLimit >= 0 && all > t.c.BulkLimit }

// isLost reports whether that many files that are gone or emptied are more than somebody takes
// away by hand. A file that was written is no loss: the log has what it was. The caller holds mu.
func (t *Tree) isLost(lost int) bool {
	return t.c.BulkLimit >= 0 && lost > few && lost > len(t.files)/2
}

// judge looks whether what has changed is too much to be taken in without a word, and asks then. It
// is true if more may be on its way. The caller holds mu.
func (t *Tree) judge(ctx context.Context, now time.Time) (wait bool) {
	if len(t.edits) == 0 || !t.met {
		return false // what is there when a tree begins is what it is to show
	}
	n, lost, coming := t.count(ctx, now)
	switch {
	case !t.isTooMuch(ctx, n, lost):
		return t.isMore(n, coming, now)
	case coming == 0:
		t.ask(t.isMany(n))
	}
	return true
}

// isTooMuch reports whether so many changes, with so many losses among them, are asked about.
func (t *Tree) isTooMuch(ctx context.Context, n, lost int) bool {
	return t.isMany(n) || t.isLost(lost) || t.isEmptied(ctx)
}

// count counts changes: all, those that take a text away, and the paths that are about to be looked
// at. The caller holds mu.
func (t *Tree) count(ctx context.Context, now time.Time) (all, lost, coming int) {
	all = len(t.edits) + len(t.lately(now))
	for _, e := range t.edits {
		if t.isLoss(e) {
			lost++
		}
	}
	for p, n := range t.noticed {
		if n.unread {
			continue // it would be waited for in vain
		}
		if t.edits[p] != nil {
			coming++
			continue
		}
		is, loss := t.mayBe(ctx, p)
		if is {
			coming++
			all++
		}
		if loss {
			lost++
		}
	}
	return all, lost, coming
}

// mayBe reports whether a path that was not looked at yet may have changed, and whether its file is
// gone or empty.
func (t *Tree) mayBe(ctx context.Context, p string) (is, loss bool) {
	have := t.files[p]
	if have == nil {
		return true, false
	}
	e, err := t.c.Storage.Stat(ctx, p)
	if err == nil && e.Version != "" && e.Version == have.version {
		return false, false // the echo of what the tree wrote
	}
	return true, errors.Is(err, fs.ErrNotExist) || err == nil && e.Size == 0 && have.size > 0
}

// isMore reports whether several files have changed and others are about to have: a program that
// changes very many takes its time, and nothing of it shall be taken in. The caller holds mu.
func (t *Tree) isMore(n, coming int, now time.Time) bool {
	if t.c.BulkLimit < 0 || coming == 0 || n <= several {
		t.held = time.Time{}
		return false
	}
	if t.held.IsZero() {
		t.held = now
	}
	return now.Sub(t.held) < together
}

// several is how many files may change, and be taken in while others change.
const several = 4

// ask has the tree stand still; many: the question is about every edit, and not about losses
// alone. The caller holds mu.
func (t *Tree) ask(many bool) {
	e := &BulkError{Tree: t.c.Name, Of: len(t.files), many: many}
	for _, p := range slices.Sorted(maps.Keys(t.edits)) {
		is := t.edits[p]
		switch {
		case is.gone:
			e.Gone++
		case t.isLoss(is):
			e.Emptied++
		case !many:
			continue // it is taken in
		default:
			e.Changed++
		}
		is.asked = true
		if len(e.Sample) < 5 {
			e.Sample = append(e.Sample, p)
		}
	}
	e.Empty = e.Gone > 0 && e.Gone == len(t.files)
	t.asking = e
	t.c.Logger.Warn(e.Error(), "tree", t.c.Name)
}

// Accept takes in what the tree asks about.
func (t *Tree) Accept(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.arrive(ctx); err != nil {
		return err
	}
	if t.asking != nil {
		t.rescan(ctx) // what came since it asked is a part of it
	}
	t.asking = nil
	err := t.importAll(ctx)
	t.stir()
	return err
}

// importAll takes in every edit there is, however many. The caller holds mu.
func (t *Tree) importAll(ctx context.Context) error {
	for len(t.edits) > 0 {
		list := maps.Clone(t.edits)
		if err := t.importEdits(ctx, list); err != nil {
			return err
		}
		done := false
		for p, e := range list {
			if _, left := t.edits[p]; !left {
				t.release(ctx, e)
				done = true
			} else if t.noticed[p] != nil {
				delete(t.edits, p) // it is looked at again
				done = true
			}
		}
		if !done {
			break
		}
	}
	return t.save(ctx)
}

// Restore has every file be as the log has it again: what the tree asks about is dropped.
// What changed later than that is kept as a conflict.
func (t *Tree) Restore(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	head, err := t.c.Head(ctx)
	if err == nil {
		err = t.arrive(ctx)
	}
	if err != nil {
		return err
	}
	for p, e := range t.edits {
		if e.asked {
			t.release(ctx, e)
		} else if err := t.keepLater(ctx, e); err != nil {
			return err
		}
		e.dropped = true
		if have := t.files[p]; have != nil {
			t.writeAgain(have.unit)
			if e.gone {
				t.set(p, nil) // and not taken away by somebody who meant it
			}
			continue
		}
		if _, err := t.c.Storage.Stat(ctx, p); err == nil && !e.gone { // a file that the log knows nothing of
			if err := t.discard(ctx, e); err != nil {
				return err
			}
		}
	}
	t.asking = nil
	err = t.mend(ctx, head)
	clear(t.edits)
	t.stir()
	return err
}

// keepLater keeps a text that was saved after the tree began to ask, and that nobody has decided
// to drop.
func (t *Tree) keepLater(ctx context.Context, e *edit) error {
	if t.isLoss(e) || e.sum == nothing {
		return nil
	}
	if e.kept == "" {
		if err := t.hold(ctx, e); err != nil {
			return err
		}
	}
	t.leaveOpen(e)
	return nil
}

// discard takes a file away that somebody has decided to drop, unless it is another one by now.
func (t *Tree) discard(ctx context.Context, e *edit) error {
	s, ok := t.c.Storage.(layouts.Swapper)
	if !ok {
		return t.c.Storage.Delete(ctx, e.path)
	}
	old, err := s.Displace(ctx, e.path)
	if err != nil {
		return err
	}
	t.came(ctx, old, e.path, e.unit, nil, want{sum: e.sum})
	t.tidy(ctx, []string{e.path})
	return nil
}

// mend shows again what is to be shown again. The caller holds mu.
func (t *Tree) mend(ctx context.Context, head events.Offset) error {
	list := slices.Collect(maps.Keys(t.redo))
	if err := t.writeOut(ctx, list, nil, head); err != nil {
		return err
	}
	return t.save(ctx)
}
