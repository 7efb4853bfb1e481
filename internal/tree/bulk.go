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

// BulkError reports that too much changed at once. The tree stops in both directions until a user decides: see Accept
// and Restore.
type BulkError struct {
	Tree    string
	Changed int      // number of written files
	Gone    int      // number of missing files
	Emptied int      // number of files that became empty
	Of      int      // number of files of the tree
	Empty   bool     // the tree's folder is empty
	Moved   bool     // the folder was moved, removed or replaced
	Sample  []string // some of the paths

	many bool // the changes exceed the limit, so all of them wait for the decision
}

func (e *BulkError) Error() string {
	what := fmt.Sprintf("of %d files, %d changed, %d were removed and %d were emptied at once", e.Of, e.Changed, e.Gone, e.Emptied)
	if e.Empty {
		what = fmt.Sprintf("the folder is empty, but had %d files", e.Of)
	}
	if e.Moved {
		what = fmt.Sprintf("its folder with %d files was removed or replaced", e.Of)
	}
	return fmt.Sprintf("tree %s waits for a decision: %s: accept or restore", e.Tree, what)
}

// recently is an edit that was imported.
type recently struct {
	path string
	at   time.Time
}

// together is the time within which changes count as simultaneous.
const together = 2 * time.Second

// minAsked is the number of files whose loss is never asked about, however small the tree.
const minAsked = 3

// isMany reports whether so many changes exceed the limit for changes without a question.
func (t *Tree) isMany(all int) bool { return t.c.BulkLimit >= 0 && all > t.c.BulkLimit }

// isLost reports whether so many missing or emptied files are more than a user would remove by hand. A written file is
// not a loss, because the log has its former content. The caller holds mu.
func (t *Tree) isLost(lost int) bool {
	return t.c.BulkLimit >= 0 && lost > minAsked && lost > len(t.files)/2
}

// judge asks if the changes are too many to be imported without a question. It returns true if more changes may be
// coming. The caller holds mu.
func (t *Tree) judge(ctx context.Context, now time.Time) (wait bool) {
	if len(t.edits) == 0 || !t.met {
		t.held = time.Time{}
		return false // a new tree shows the files that exist when it starts
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

// isTooMuch reports whether n changes, of which lost are losses, require a question.
func (t *Tree) isTooMuch(ctx context.Context, n, lost int) bool {
	return t.isMany(n) || t.isLost(lost) || t.isEmptied(ctx)
}

// count returns the number of changes, of losses among them, and of paths still to be examined. The caller holds mu.
func (t *Tree) count(ctx context.Context, now time.Time) (all, lost, coming int) {
	all = len(t.edits) + len(t.lately(now))
	for _, e := range t.edits {
		if t.isLoss(e) {
			lost++
		}
	}
	for p, n := range t.noticed {
		if n.unread {
			continue // it cannot be read, so waiting is useless
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

// mayBe reports whether a path that was not examined yet may have changed, and whether its file is missing or empty.
func (t *Tree) mayBe(ctx context.Context, p string) (is, loss bool) {
	have := t.files[p]
	if have == nil {
		return true, false
	}
	e, err := t.c.Storage.Stat(ctx, p)
	if err == nil && e.Version != "" && e.Version == have.version {
		return false, false // the notification of the tree's own write
	}
	return true, errors.Is(err, fs.ErrNotExist) || err == nil && e.Size == 0 && have.size > 0
}

// isMore reports whether several files have changed and more are about to. A program that changes very many files takes
// time, and none of its changes should be imported before the question. The caller holds mu.
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

// several is the number of changed files that are imported even while other files change.
const several = 4

// ask stops the tree with a question. many means that the question covers all edits, not only losses. The caller holds
// mu.
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
			continue // it is imported
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

// Accept imports the changes that the tree asks about.
func (t *Tree) Accept(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.arrive(ctx); err != nil {
		return err
	}
	if t.asking != nil {
		t.rescan(ctx) // changes since the question are part of it
	}
	t.asking = nil
	err := t.importAll(ctx)
	t.stir()
	return err
}

// importAll imports all edits. The caller holds mu.
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
				delete(t.edits, p) // it will be examined again
				done = true
			}
		}
		if !done {
			break
		}
	}
	return t.save(ctx)
}

// Restore restores every file from the log and drops the changes that the tree asks about. Later changes are kept as
// conflicts.
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
			t.writeAgain(have.entry)
			if e.gone {
				t.set(p, nil) // not as the removal of a user
			}
			continue
		}
		if _, err := t.c.Storage.Stat(ctx, p); err == nil && !e.gone { // a file that the log does not know
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

// keepLater keeps a text that was saved after the question, so that no user decided to drop it.
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

// discard removes a file that a user decided to drop, unless it has changed since.
func (t *Tree) discard(ctx context.Context, e *edit) error {
	s, ok := t.c.Storage.(layouts.Swapper)
	if !ok {
		return t.c.Storage.Delete(ctx, e.path)
	}
	old, err := s.Displace(ctx, e.path)
	if err != nil {
		return err
	}
	t.came(ctx, old, e.path, e.entry, nil, wantedFile{sum: e.sum})
	t.tidy(ctx, []string{e.path})
	return nil
}

// mend rewrites the files that are marked for it. The caller holds mu.
func (t *Tree) mend(ctx context.Context, head events.Offset) error {
	list := slices.Collect(maps.Keys(t.redo))
	if err := t.writeOut(ctx, list, nil, head); err != nil {
		return err
	}
	return t.save(ctx)
}
