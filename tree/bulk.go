package tree

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
)

// BulkError says that so much changed at once that the tree stands still, in both directions,
// until somebody says what is to become of it: see Accept and Restore.
type BulkError struct {
	Tree    string
	Changed int      // files that were written
	Gone    int      // files that are not there any more
	Of      int      // files that the tree has
	Empty   bool     // there is nothing at all where the tree is
	Moved   bool     // its folder is gone, or another one is there
	Sample  []string // some of the paths
}

func (e *BulkError) Error() string {
	what := fmt.Sprintf("%d files changed at once and %d are gone, of %d", e.Changed, e.Gone, e.Of)
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

// isBulk reports whether that many changes, so many of them of files that were there, are more
// than somebody makes by hand. The caller holds mu.
func (t *Tree) isBulk(all, there int) bool {
	return t.c.BulkLimit >= 0 && (all > t.c.BulkLimit || there > few && there > len(t.files)/2)
}

// judge looks whether what has changed is too much to be taken in without a word. It is true
// if more may be on its way. The caller holds mu.
func (t *Tree) judge(ctx context.Context, now time.Time) (wait bool) {
	if len(t.edits) == 0 || !t.met {
		return false // what is there when a tree begins is what it is to show
	}
	coming, more, there := 0, 0, 0 // paths about to be looked at, those of them that are not edits already, and edits of files that were there
	for p := range t.edits {
		if t.files[p] != nil {
			there++
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
		if have := t.files[p]; have != nil {
			if e, err := t.c.Storage.Stat(ctx, p); err == nil && e.Version != "" && e.Version == have.version {
				continue // the echo of what the tree wrote
			}
			there++
		}
		coming++
		more++
	}
	for len(t.recent) > 0 && now.Sub(t.recent[0].at) > together {
		t.recent = t.recent[1:]
	}
	before := make(map[string]bool) // one that is saved again and again is one
	for _, r := range t.recent {
		if t.edits[r.path] == nil && t.noticed[r.path] == nil {
			before[r.path] = true
		}
	}
	n := len(t.edits) + more + len(before)
	if !t.isBulk(n, there) && !t.isEmptied(ctx) {
		return t.isMore(n, coming, now)
	}
	if coming > 0 {
		return true
	}
	t.ask()
	return true
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

// ask has the tree stand still. The caller holds mu.
func (t *Tree) ask() {
	e := &BulkError{Tree: t.c.Name, Of: len(t.files)}
	for _, p := range slices.Sorted(maps.Keys(t.edits)) {
		if t.edits[p].gone {
			e.Gone++
		} else {
			e.Changed++
		}
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
		t.lookThrough(ctx) // what came since it asked is a part of it
	}
	t.asking = nil
	err := t.takeAll(ctx)
	t.stir()
	return err
}

// takeAll takes in every edit there is, however many. The caller holds mu.
func (t *Tree) takeAll(ctx context.Context) error {
	for len(t.edits) > 0 {
		list := maps.Clone(t.edits)
		if err := t.take(ctx, list); err != nil {
			return err
		}
		done := false
		for p := range list {
			if _, left := t.edits[p]; !left {
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
		e.dropped = true
		if have := t.files[p]; have != nil {
			t.showAgain(have.unit)
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

// discard takes a file away that somebody has decided to drop, unless it is another one by now.
func (t *Tree) discard(ctx context.Context, e *edit) error {
	s, ok := t.c.Storage.(formats.Swapper)
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
	if err := t.show(ctx, list, nil, head); err != nil {
		return err
	}
	return t.save(ctx)
}
