package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/projector"
)

// Edition is a second edition of a view, built beside the current one.
type Edition interface {
	projector.View
	// Check verifies the file. If the file is damaged, or changed after its last writer closed it, Check returns
	// ErrNoView and no edition can be built in it.
	Check(ctx context.Context) error
	// Replace replaces the current edition by this one, atomically for all readers. If the current one is ahead,
	// Replace returns ErrBehind and changes nothing.
	Replace(ctx context.Context) error
	Close() error

	own() *viewFile
}

var (
	_ Edition = (*Catalog)(nil)
	_ Edition = (*Search)(nil)
	_ Edition = (*Work)(nil)
	_ Edition = (*ownView)(nil)

	_ projector.Selective = (*Catalog)(nil)
	_ projector.Selective = (*Work)(nil)
)

// ErrBehind reports that an edition is behind the one that it should replace.
var ErrBehind = errors.New("catalog: the new edition is behind")

// maxReplaces bounds the attempts of an edition to catch up with a faster writer.
const maxReplaces = 100

// Rebuild folds the log from the start into a second edition, which then replaces the first. Readers see either
// edition.
func Rebuild(ctx context.Context, r *projector.Runner, e Edition, progress func(projector.Cursor)) error {
	r.View = e
	for attempt := 1; ; attempt++ {
		err := r.CatchUp(ctx, progress)
		if err == nil {
			err = e.Replace(ctx)
		}
		if !errors.Is(err, ErrBehind) || attempt == maxReplaces {
			return err
		}
	}
}

// own implements Edition.
func (f *viewFile) own() *viewFile { return f }

// Check implements Edition.
func (f *viewFile) Check(ctx context.Context) error {
	r, err := openReader(ctx, f.form, f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.check(ctx, r.db)
}

// check runs SQLite's integrity check.
func (r *viewReader) check(ctx context.Context, q querier) error {
	var said string
	if err := q.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&said); err != nil {
		return r.wrap(err)
	}
	if said != "ok" {
		return fmt.Errorf("%w: %s: %s", ErrNoView, r.path, said)
	}
	return nil
}

// Replace implements Edition.
func (f *viewFile) Replace(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := f.transact(ctx, func() error {
		replaced, generation, err := readCursor(ctx, f.conn, f.view)
		if err != nil {
			return err
		}
		if replaced.Offset > f.cursor.Offset {
			return ErrBehind
		}
		if err := f.move(ctx, f.cursor); err != nil {
			return err
		}
		if err := f.dropSet(ctx, current); err != nil {
			return err
		}
		for _, table := range append(slices.Clone(f.tables), "quarantine") {
			if err := f.exec(ctx, "ALTER TABLE "+table+f.set+" RENAME TO "+table); err != nil {
				return err
			}
		}
		_, err = f.conn.ExecContext(ctx, "UPDATE views SET name=?, generation=? WHERE name=?", f.view, generation+1, f.view+f.set)
		return err
	})
	if errors.Is(err, ErrBehind) {
		return err
	}
	if err != nil {
		return f.wrap(err)
	}
	return f.close()
}
