package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/projector"
)

// workOf returns the source of due work: the store's view, or the log itself if no process keeps the view, as on a
// server that others run. shown waits until the source includes the records that are durable at its call.
func workOf(ctx context.Context, st *tally.Store) (work daemon.Work, shown func(context.Context) error, end func(), err error) {
	wait := func(ctx context.Context) error {
		head, err := st.Log.Durable(ctx)
		if err != nil {
			return err
		}
		return st.Wait(ctx, "work", head)
	}
	err = wait(ctx)
	if errors.Is(err, tally.ErrNotFound) {
		return daemon.NewScan(st.Log, st.Loader()), nil, func() {}, nil
	}
	if err == nil {
		err = catalog.Wait(ctx, st.ViewsDir(), "work", 0) // the view of a new store may not exist yet
	}
	if err != nil {
		return nil, nil, nil, err
	}
	v := &workView{dir: st.ViewsDir()}
	return v, wait, v.close, nil
}

// workView reads the view of due work while daemons run. The view's file may be replaced at any time.
type workView struct {
	dir string

	mu   sync.Mutex // guards the fields below
	r    catalog.WorkReader
	file os.FileInfo // open in r; nil: r is closed
}

// read calls a function with a reader of the view's current file.
func (v *workView) read(ctx context.Context, do func(catalog.WorkReader) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	file, err := os.Stat(filepath.Join(v.dir, catalog.WorkFileName))
	if err != nil {
		v.shut()
		return fmt.Errorf("%w: %w", catalog.ErrNoView, err)
	}
	if v.file == nil || !os.SameFile(file, v.file) {
		v.shut()
		if v.r, err = catalog.OpenWork(ctx, v.dir); err != nil {
			return err
		}
		v.file = file // if the file was replaced meanwhile, the next read notices
	}
	if err = do(v.r); err != nil {
		v.shut() // a damaged view is repaired by the process that keeps it
	}
	return err
}

// shut closes the reader. The caller holds mu.
func (v *workView) shut() {
	if v.file != nil {
		v.r.Close()
		v.file = nil
	}
}

func (v *workView) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut()
}

// Due implements daemon.Work.
func (v *workView) Due(ctx context.Context, what string, upto time.Time, limit int) (list []projector.Due, err error) {
	err = v.read(ctx, func(r catalog.WorkReader) (err error) {
		list, err = r.Due(ctx, what, upto, limit)
		return err
	})
	return list, err
}

// Cursor implements daemon.Work.
func (v *workView) Cursor(ctx context.Context) (at events.Offset, err error) {
	err = v.read(ctx, func(r catalog.WorkReader) (err error) {
		at, err = r.Cursor(ctx)
		return err
	})
	return at, err
}
