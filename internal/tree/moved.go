package tree

import (
	"context"
	"time"
)

// movable is a storage that may come to be elsewhere than where it was opened, as a folder does
// that somebody moves, removes, or mounts something on.
type movable interface {
	Moved() bool
	Reopen() error // what is there now is used from then on
}

// isAway reports whether the files are not where they were any more. Then nothing is written, to
// what nobody sees, and nothing is taken in, until they are there again or somebody decides. The
// caller holds mu.
func (t *Tree) isAway() bool {
	s, ok := t.c.Storage.(movable)
	if !ok {
		return false
	}
	away, asked := s.Moved(), t.asking != nil && t.asking.Moved
	switch {
	case away && len(t.files) == 0 && s.Reopen() == nil: // nobody misses anything
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

// watchAnew has everything be looked at, and be watched where it is now. The caller holds mu.
func (t *Tree) watchAnew() {
	t.audited, t.rewatch = false, true
	t.stir()
}

// arrive has the tree be where its folder is now, as somebody decided, and looks at all that
// is there. The caller holds mu.
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

// rescan finds every edit there is now, settled or not. The caller holds mu.
func (t *Tree) rescan(ctx context.Context) {
	for _, f := range t.files {
		f.version = ""
	}
	t.scan(ctx, "")
	for range 3 { // what is in a folder is noticed when that is looked at
		for _, n := range t.noticed {
			n.last, n.settle = time.Time{}, settleGone
		}
		t.settled(ctx, t.c.Now())
	}
}

// isEmptied reports whether there is nothing at all any more where files were, as where a file
// system is not mounted. The caller holds mu.
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
