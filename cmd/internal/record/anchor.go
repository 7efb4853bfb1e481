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

// anchor is a record that the store had when what is remembered was true. It stands in the
// file whose lock a watch holds. A store without it is another one, or was put back to an
// older state: then what is remembered of it is not so.
type anchor struct {
	At events.Offset `json:"at"`
	ID string        `json:"id"`
}

// anchored returns the anchor in the file of a lock; it is the zero anchor if there is none.
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

// write keeps the anchor in the file of a lock. After a power cut it may be none: then all is
// asked of the log again.
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

// anchor forgets what is remembered of another store, and has what is remembered from now on
// belong to this one.
func (f *following) anchor(ctx context.Context) error {
	head, err := f.store.now().Log.Head(ctx)
	if err != nil {
		return err
	}
	now := anchor{At: head}
	if head > 0 {
		if rec, err := f.store.Record(ctx, head); err == nil { // else it is the next one that comes
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

// forget removes the files in which is kept how far was read.
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
			fmt.Fprintln(errw, "the store is another than it was, or an older one: how far it has each file is found out again")
		}
	}
	return nil
}

// keep has what is remembered belong to what was appended last.
func (f *following) keep() (err error) {
	a := f.teller.latest()
	if a.At == 0 {
		return nil
	}
	for _, lock := range f.locks {
		err = errors.Join(err, a.write(lock))
	}
	return err
}
