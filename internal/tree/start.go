package tree

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/tallylog/tally/internal/layouts"
)

// recover finds out what became of what was about to be written when the tree ended, and has
// every file be looked at that may have changed since: all of them unless it stopped by itself.
// The caller holds mu.
func (t *Tree) recover(ctx context.Context) error {
	// First: what came out of a place is known by what the tree had there before.
	if err := t.leftovers(ctx); err != nil {
		return err
	}
	for p, meant := range t.intents {
		sum, err := t.sumOf(ctx, p)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, layouts.ErrNotFile) { // a link is reported when it is skipped
			t.c.Logger.Warn("a file of the tree cannot be read", "tree", t.c.Name, "path", p, "err", err)
			continue
		}
		if err == nil && sum == meant.sum {
			if e, err := t.c.Storage.Stat(ctx, p); err == nil {
				t.set(p, &file{unit: meant.unit, at: meant.at, sum: sum, size: e.Size, mode: e.Mode, version: e.Version})
			}
		}
		t.writeAgain(meant.unit)
	}
	for p := range t.intents {
		delete(t.intents, p)
		t.changed.intent(p)
	}
	if !t.clean {
		for _, f := range t.files {
			f.version = "" // nothing is believed but the content
		}
	}
	for sub, u := range t.units {
		if u.at == 0 && t.c.Way != In {
			t.redo[sub], t.again = true, t.c.Now()
		}
	}
	t.clean = false
	return nil
}

// leftovers deals with temporary files that a crash has left. The caller holds mu.
func (t *Tree) leftovers(ctx context.Context) (err error) {
	enters := func(p string) bool { return path.Base(p) != ".git" }
	t.each(ctx, "", enters, func(p string, e layouts.FileInfo) {
		if layouts.IsTemporary(p) && e.Size >= 0 {
			err = errors.Join(err, t.leftover(ctx, p))
		}
	})
	return err
}
