package embedded

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

// workOf returns where daemons of a store look: in its view, or, if nobody keeps one, as on a
// server of others, in the log itself. shown waits until it shows what is recorded by now.
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
		err = catalog.Wait(ctx, st.ViewsDir(), "work", 0) // of a store without records it may be to come
	}
	if err != nil {
		return nil, nil, nil, err
	}
	v := &workView{dir: st.ViewsDir()}
	return v, wait, v.close, nil
}

// workView reads the view of what is to be done, for as long as daemons run. Its file may be
// made anew at any time.
type workView struct {
	dir string

	mu   sync.Mutex // guards what follows
	r    catalog.WorkReader
	file os.FileInfo // that r reads; nil: none
}

// read has a function read the view, as it is in the directory.
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
		v.file = file // if that is another one by now, it is noticed the next time
	}
	if err = do(v.r); err != nil {
		v.shut() // it may be damaged, and mended by whoever keeps it
	}
	return err
}

// shut closes what is read. The caller holds mu.
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
