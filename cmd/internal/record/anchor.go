package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/events"
)

// anchor names a record of the store at the time when the progress was saved. It is in the lock file of a watch. If the
// store lacks this record, it is another store or was restored to an older state, and the saved progress is ignored.
type anchor struct {
	At events.Offset `json:"at"`
	ID string        `json:"id"`
}

// anchored returns the anchor in a lock file, or the zero anchor.
func anchored(lock io.ReadSeeker) (a anchor, err error) {
	if _, err := lock.Seek(0, io.SeekStart); err != nil {
		return a, err
	}
	text, err := io.ReadAll(io.LimitReader(lock, 64<<10))
	if json.Unmarshal(text, &a) != nil {
		a = anchor{} // a crash may have left a part of it
	}
	return a, err
}

// write writes the anchor to a lock file. If a power cut loses it, the next watch reads the progress from the log.
func (a anchor) write(lock *os.File) error {
	text, err := json.Marshal(a)
	if err == nil {
		err = lock.Truncate(0)
	}
	if err == nil {
		_, err = lock.WriteAt(append(text, '\n'), 0)
	}
	return err
}

// holds reports whether a log has the record.
func (a anchor) holds(ctx context.Context, src interface {
	Record(ctx context.Context, at events.Offset) (events.Record, error)
}) (bool, error) {
	if a.At == 0 {
		return false, nil
	}
	rec, err := src.Record(ctx, a.At)
	if _, damaged := errors.AsType[*events.DamageError](err); damaged || errors.Is(err, events.ErrNotFound) {
		return false, nil
	}
	return err == nil && rec.ID == a.ID, err
}

// anchor drops saved progress that belongs to another store, and saves the anchor of this one.
func (f *following) anchor(ctx context.Context) error {
	head, err := f.store.Store().Log.Head(ctx)
	if err != nil {
		return err
	}
	now := anchor{At: head}
	if head > 0 {
		if rec, err := f.store.Record(ctx, head); err == nil { // else the next append sets the anchor
			now.ID = rec.ID
		}
	}
	for _, lock := range f.locks {
		was, err := anchored(lock)
		if err != nil {
			return err
		}
		holds, err := was.holds(ctx, f.store)
		if err != nil {
			return err
		}
		if holds {
			continue
		}
		if err := forget(strings.TrimSuffix(lock.Name(), ".lock"), was.At > 0, f.app.Err); err != nil {
			return err
		}
		if err := now.write(lock); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the files with the progress.
func forget(name string, isOther bool, errw io.Writer) error {
	paths, _ := filepath.Glob(name + "*.db") // a name has letters, digits, dashes and dots
	for _, path := range paths {
		rest := strings.TrimSuffix(strings.TrimPrefix(path, name), ".db")
		if rest != "" && rest != unredacted {
			continue // of another namespace
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		if isOther {
			fmt.Fprintln(errw, "the store was replaced or restored: files are compared with it again")
		}
	}
	return nil
}

// keep saves the last append as the anchor.
func (f *following) keep() (err error) {
	a := f.reporter.latest()
	if a.At == 0 {
		return nil
	}
	for _, lock := range f.locks {
		err = errors.Join(err, a.write(lock))
	}
	return err
}
