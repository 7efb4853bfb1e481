package tree

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/tallylog/tally/internal/layouts"
)

// recover determines the outcome of the intents when the tree ended, and schedules the examination of files that may
// have changed since. If the tree did not stop regularly, these are all files. The caller holds mu.
func (t *Tree) recover(ctx context.Context) error {
	// First, because displaced files are recognised by the previous state.
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
				t.set(p, &fileRecord{entry: meant.entry, at: meant.at, sum: sum, size: e.Size, mode: e.Mode, version: e.Version})
			}
		}
		t.writeAgain(meant.entry)
	}
	for p := range t.intents {
		delete(t.intents, p)
		t.changed.intent(p)
	}
	if !t.clean {
		for _, f := range t.files {
			f.version = "" // only the content is trusted
		}
	}
	for sub, u := range t.entries {
		if u.at == 0 && t.c.Way != In {
			t.redo[sub], t.again = true, t.c.Now()
		}
	}
	t.clean = false
	return nil
}

// leftovers handles temporary files that a crash has left. The caller holds mu.
func (t *Tree) leftovers(ctx context.Context) (err error) {
	enters := func(p string) bool { return path.Base(p) != ".git" }
	t.each(ctx, "", enters, func(p string, e layouts.FileInfo) {
		if layouts.IsTemporary(p) && e.Size >= 0 {
			err = errors.Join(err, t.leftover(ctx, p))
		}
	})
	return err
}
