package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// maxScrub bounds how long Refold waits for readers that need the write-ahead log.
const maxScrub = 10 * time.Second

// Refold makes the view in a directory forget what the log has erased of subjects. r is the runner that keeps the view
// in this process, or one that no process runs. The caller names the forks of the subjects too. The view of open work
// folds subjects together, so it is rebuilt. An unfinished rebuild starts again, and the write-ahead log is emptied. If
// a reader prevents that, the error is ErrBusy.
func (v View) Refold(ctx context.Context, dir string, r *projector.Runner, subjects []events.Subject) error {
	path := filepath.Join(dir, v.File)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	e := v.Next(dir, r.Logger)
	_, _, err := e.Begin(ctx)
	if err == nil {
		err = e.Reset(ctx)
	}
	switch w, isWork := e.(*Work); {
	case err != nil:
	case !isWork:
		err = r.Refold(ctx, subjects)
	case slices.ContainsFunc(subjects, w.Wants):
		err = Rebuild(ctx, &projector.Runner{Log: r.Log, View: e, Room: r.Room, Logger: r.Logger, MaxValue: r.MaxValue}, e, nil)
		if err == nil { // Replace has closed the file
			_, _, err = e.Begin(ctx)
		}
	}
	f := e.own()
	if err == nil {
		err = f.discard(ctx)
	}
	if err = errors.Join(err, e.Close()); err == nil {
		err = unsealUsed(path)
	}
	if err != nil {
		return fmt.Errorf("catalog: view %s: %w", v.Name, err)
	}
	return nil
}

// ErrBusy reports that a reader needs the write-ahead log of a view, which has former rows.
var ErrBusy = errors.New("a reader keeps former rows in use")

// discard drops the set, and empties the write-ahead log.
func (f *viewFile) discard(ctx context.Context) error {
	sql := context.WithoutCancel(ctx)
	if err := f.transact(sql, func() error { return f.dropSet(sql, f.set) }); err != nil {
		return f.wrap(err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxScrub)
	defer cancel()
	for {
		done, err := f.truncate(sql)
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return f.wrap(ErrBusy)
		}
	}
}

// unsealUsed removes the checksum that the end of one connection has stored, if another one is open.
func unsealUsed(path string) error {
	if _, err := os.Stat(path + "-wal"); err != nil {
		return nil
	}
	return unseal(path)
}

// RemoveOwn removes the files of own views in a directory that hold content which the log has erased, and that this
// process does not keep. A program that keeps one, or does so later, builds it again.
func RemoveOwn(dir string, isKept func(v OwnFile) bool) error {
	list, err := OwnIn(dir)
	for _, f := range list {
		if !isKept(f) {
			err = errors.Join(err, f.Remove())
		}
	}
	return err
}
