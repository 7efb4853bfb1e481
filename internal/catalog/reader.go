package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// ErrNoView reports that no file of a view can be read. It is missing, of another version or damaged, or the disk is
// too full for the files that SQLite needs. The process that runs the views creates it.
var ErrNoView = errors.New("catalog: no view to read")

// Standing is the progress of a view, with its quarantine.
type Standing struct {
	View        string
	Cursor      projector.Cursor
	Updated     time.Time
	Quarantined []projector.Quarantine
	Lacks       bool // the view was made without unreadable records
}

// viewReader reads a file of a view while another process may write it.
type viewReader struct {
	form
	path string
	db   *sql.DB
}

// openReader opens a file for reading. If the file is missing, of another version, or changed after its last writer
// closed it, the error is ErrNoView.
func openReader(ctx context.Context, f form, path string) (*viewReader, error) {
	r, err := openAny(ctx, f, path)
	if err != nil {
		return nil, err
	}
	if err := checkSeal(path); err != nil {
		r.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrNoView, path, err)
	}
	return r, nil
}

// openAny is like openReader, but also opens a file that changed after its last writer closed it.
func openAny(ctx context.Context, f form, path string) (*viewReader, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s does not exist", ErrNoView, path)
	}
	return newReader(ctx, f, path, "rw")
}

func newReader(ctx context.Context, f form, path, mode string) (*viewReader, error) {
	db, err := sql.Open("sqlite", dsn(path, mode))
	if err != nil {
		return nil, fmt.Errorf("catalog: %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	r := &viewReader{form: f, path: path, db: db}
	version, err := readVersion(ctx, db)
	if err == nil && version != f.version {
		err = &versionError{version, f.version}
	}
	if err == nil {
		_, err = r.Standing(ctx)
	}
	if err != nil {
		db.Close()
		return nil, r.wrap(err)
	}
	return r, nil
}

// wrap adds the file to an error. Damage counts as a missing file. The process that rebuilds a file may remove it at
// any time, and on a full disk even reads fail.
func (r *viewReader) wrap(err error) error {
	_, isOther := errors.AsType[*versionError](err)
	switch {
	case err == nil:
		return nil
	case isNoRoom(err):
		return fmt.Errorf("%w: %s: %w: %v", ErrNoView, r.path, syscall.ENOSPC, err)
	case isCode(err, corrupt, cannotOpen, notADatabase), errors.Is(err, sql.ErrNoRows), isOther:
		return fmt.Errorf("%w: %s: %w", ErrNoView, r.path, err)
	}
	return fmt.Errorf("catalog: %s: %w", r.path, err)
}

// Standing returns the progress of the view.
func (r *viewReader) Standing(ctx context.Context) (Standing, error) {
	s := Standing{View: r.view}
	var err error
	if s.Cursor, _, err = readCursor(ctx, r.db, r.view); err != nil {
		return s, r.wrap(err)
	}
	var updated string
	if err := r.db.QueryRowContext(ctx, "SELECT updated FROM views WHERE name=?", r.view).Scan(&updated); err != nil {
		return s, r.wrap(err)
	}
	s.Updated, _ = time.Parse(time.RFC3339Nano, updated)
	if s.Quarantined, err = readQuarantine(ctx, r.db, current); err == nil {
		var id int
		err = r.db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id)
		s.Lacks = id == lacking
	}
	return s, r.wrap(err)
}

// Close closes the file.
func (r *viewReader) Close() error { return r.db.Close() }

// poll is the interval between looks at a file that another process writes.
const poll = 2 * time.Millisecond

// Wait returns when the view of this name in a directory has applied the record at an offset. Its writer may be another
// process, and may not have started. If a newer version wrote the file, the error is ErrNoView. If no process keeps a
// view that programs bring, it is events.ErrNotFound.
func Wait(ctx context.Context, dir, view string, at events.Offset) error {
	v, err := viewIn(dir, view)
	if err != nil {
		return err
	}
	if v.own {
		return v.waitKept(ctx, dir, at)
	}
	return v.Wait(ctx, dir, at)
}

// WaitOwn is like Wait, for views that programs bring only.
func WaitOwn(ctx context.Context, dir, view string, at events.Offset) error {
	v, err := viewIn(dir, view)
	if err == nil && !v.own {
		err = fmt.Errorf("view %s: %w", view, events.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return v.waitKept(ctx, dir, at)
}

// takeover is how long a view of programs may have no keeper after the last one ended.
const takeover = 2 * time.Second

// waitKept is like Wait while a process keeps the view.
func (v View) waitKept(ctx context.Context, dir string, at events.Offset) error {
	for {
		step, stop := context.WithTimeout(ctx, takeover)
		err := v.Wait(step, dir, at)
		isOver := step.Err() != nil && ctx.Err() == nil
		stop()
		if !isOver {
			return err
		}
		if _, isKept := keeperOf(filepath.Join(dir, v.File)); !isKept {
			return fmt.Errorf("view %s: %w: no process keeps it", v.Name, events.ErrNotFound)
		}
	}
}

// Wait returns when the view in a directory has applied the record at an offset, whether a process keeps it or not.
func (v View) Wait(ctx context.Context, dir string, at events.Offset) error {
	ticks := time.NewTicker(poll)
	defer ticks.Stop()
	for {
		// Reopen the file regularly: it may have been replaced.
		look, stop := context.WithTimeout(ctx, time.Second)
		reached, err := reachedIn(look, v.form, filepath.Join(dir, v.File), at, ticks.C)
		late := look.Err() != nil // a timeout implies nothing about the file
		stop()
		if err != nil && !late && (!errors.Is(err, ErrNoView) || isNewer(err)) || err == nil && reached {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return fmt.Errorf("catalog: waiting for view %s to show %v: %w", v.Name, at, context.Cause(ctx))
		}
	}
}

// isNewer reports whether a newer version wrote a file. Its writer will continue with that version, so this version can
// never read it.
func isNewer(err error) bool {
	other, ok := errors.AsType[*versionError](err)
	return ok && other.have > other.want
}

// reachedIn polls a file until it shows an offset. If ctx ends first, it returns without an error.
func reachedIn(ctx context.Context, f form, path string, at events.Offset, ticks <-chan time.Time) (bool, error) {
	r, err := openAny(ctx, f, path)
	if err != nil {
		return false, err
	}
	defer r.Close()
	for ctx.Err() == nil {
		c, _, err := readCursor(ctx, r.db, f.view)
		if err != nil || c.Offset >= at {
			return true, r.wrap(err)
		}
		select {
		case <-ticks:
		case <-ctx.Done():
		}
	}
	return false, nil
}

// StandingOf returns the progress of the view of this name in a directory.
func StandingOf(ctx context.Context, dir, view string) (Standing, error) {
	v, err := viewIn(dir, view)
	if err != nil {
		return Standing{View: view}, err
	}
	return v.standing(ctx, dir)
}

func (v View) standing(ctx context.Context, dir string) (Standing, error) {
	r, err := openAny(ctx, v.form, filepath.Join(dir, v.File))
	if err != nil {
		return Standing{View: v.Name}, err
	}
	defer r.Close()
	return r.Standing(ctx)
}
