package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
)

var (
	_ Eraser = (*Files)(nil)
	_ Eraser = (*Mem)(nil)
)

// Erase implements Eraser. It overwrites the files with zeros and syncs them before it removes them.
func (f *Files) Erase(ctx context.Context, subjects ...events.Subject) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.erased++
	for _, sub := range subjects {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := eraseFolder(f.folder(sub)); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	return nil
}

// eraseFolder erases the files of a folder, also those that a crash has left.
func eraseFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Type().IsRegular() {
			err = durable.Erase(path)
		} else {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return durable.SyncPath(dir)
}

// Since implements Eraser.
func (f *Files) Since() Store {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return filesSince{f, f.erased}
}

type filesSince struct {
	*Files
	erased int
}

// Put implements Store.
func (f filesSince) Put(ctx context.Context, s Snapshot) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.Files.erased != f.erased {
		return ErrErased
	}
	return f.Files.Put(ctx, s)
}

// Erase implements Eraser.
func (m *Mem) Erase(_ context.Context, subjects ...events.Subject) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erased++
	for _, sub := range subjects {
		delete(m.kept, sub)
	}
	return nil
}

// Since implements Eraser.
func (m *Mem) Since() Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	return memSince{m, m.erased}
}

type memSince struct {
	*Mem
	erased int
}

// Put implements Store.
func (m memSince) Put(_ context.Context, s Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Mem.erased != m.erased {
		return ErrErased
	}
	return m.putLocked(s)
}
