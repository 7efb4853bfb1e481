package tree

import (
	"context"
	"time"
)

// movable is a storage whose location may change, like a folder that is moved, removed, or mounted over.
type movable interface {
	Moved() bool
	Reopen() error // switches to the current location
}

// isAway reports whether the files are no longer at their location. Then nothing is written or imported until they
// return or a user decides. The caller holds mu.
func (t *Tree) isAway() bool {
	s, ok := t.c.Storage.(movable)
	if !ok {
		return false
	}
	away, asked := s.Moved(), t.asking != nil && t.asking.Moved
	switch {
	case away && len(t.files) == 0 && s.Reopen() == nil: // the tree has no files to lose
		away, t.asking = false, nil
		t.watchAnew()
	case away && !asked:
		t.asking = &BulkError{Tree: t.c.Name, Of: len(t.files), Moved: true}
		t.c.Logger.Warn(t.asking.Error(), "tree", t.c.Name)
	case !away && asked:
		t.asking = nil
		t.watchAnew()
	}
	return away
}

// watchAnew schedules an examination of all files, and a watch of the new location. The caller holds mu.
func (t *Tree) watchAnew() {
	t.audited, t.rewatch = false, true
	t.stir()
}

// arrive moves the tree to its new location after a user's decision, and examines all files there. The caller holds mu.
func (t *Tree) arrive(ctx context.Context) error {
	if !t.isAway() {
		return nil
	}
	if err := t.c.Storage.(movable).Reopen(); err != nil {
		return err
	}
	t.asking = nil
	t.watchAnew()
	t.rescan(ctx)
	for _, e := range t.edits {
		e.asked = true // by the question about the folder
	}
	return nil
}

// rescan finds all current edits, settled or not. The caller holds mu.
func (t *Tree) rescan(ctx context.Context) {
	for _, f := range t.files {
		f.version = ""
	}
	t.scan(ctx, "")
	for range 3 { // the examination of a folder notes its content
		for _, n := range t.noticed {
			n.last, n.settle = time.Time{}, settleGone
		}
		t.settled(ctx, t.c.Now())
	}
	t.looked = t.looked || ctx.Err() == nil
}

// isEmptied reports whether the location became completely empty, for example because a file system is not mounted. The
// caller holds mu.
func (t *Tree) isEmptied(ctx context.Context) bool {
	if t.c.BulkLimit < 0 || len(t.edits) < len(t.files) {
		return false
	}
	for _, e := range t.edits {
		if !e.gone {
			return false
		}
	}
	list, err := t.c.Storage.List(ctx, "")
	return err == nil && len(list) == 0
}
