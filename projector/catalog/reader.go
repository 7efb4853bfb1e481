package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// ErrNoView says that there is no file of a view that can be read: none was
// written yet, or by another version, or it is damaged. Whoever runs the views
// makes one.
var ErrNoView = errors.New("catalog: there is no view to read")

// Standing says how far a view has got, and what it left aside.
type Standing struct {
	View        string
	Cursor      projector.Cursor
	Updated     time.Time
	Quarantined []projector.Quarantine
}

// reader reads a file of a view while another process may write it.
type reader struct {
	form
	path string
	db   *sql.DB
}

// openReader opens a file to read it. One that is not there, or not of this
// version, is ErrNoView.
func openReader(ctx context.Context, f form, path string) (*reader, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not there", ErrNoView, path)
	}
	db, err := sql.Open("sqlite", dsn(path, "rw"))
	if err != nil {
		return nil, fmt.Errorf("catalog: %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	r := &reader{form: f, path: path, db: db}
	version, err := readVersion(ctx, db)
	if err == nil && version != f.version {
		err = fmt.Errorf("%w: it has version %d, this is %d", ErrNoView, version, f.version)
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

// wrap gives an error its file. Damage is as good as no file.
func (r *reader) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case isDamage(err), errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: %s: %v", ErrNoView, r.path, err)
	}
	return fmt.Errorf("catalog: %s: %w", r.path, err)
}

// Standing says how far the view has got.
func (r *reader) Standing(ctx context.Context) (Standing, error) {
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
	s.Quarantined, err = readQuarantine(ctx, r.db, current)
	return s, r.wrap(err)
}

// poll is how often a file that another process writes is looked at.
const poll = 2 * time.Millisecond

// Wait returns when the view shows at least the record at an offset. Whoever
// writes it may be another process.
func (r *reader) Wait(ctx context.Context, at events.Offset) error {
	for {
		c, _, err := readCursor(ctx, r.db, r.view)
		if err != nil || c.Offset >= at {
			return r.wrap(err)
		}
		timer := time.NewTimer(poll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("catalog: view %s is at %v, waiting for %v: %w", r.view, c.Offset, at, ctx.Err())
		}
	}
}

// Close gives the file up.
func (r *reader) Close() error { return r.db.Close() }
