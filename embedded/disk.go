package embedded

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/snapshot"
)

// Reserve is the default space in bytes that a store leaves free on the disk. Appends are refused before the system
// refuses a write, because the server does not recover from a failed write. Closing, reading and recovering also need
// some space.
const Reserve = 64 << 20

// unlimited is the server's own limit of stored bytes. The server does not check the free space of the disk; room does.
const unlimited = math.MaxInt64 / 4

// room watches the free space on the disk of a directory.
type room struct {
	dir     string
	reserve uint64
	refused error // returned regardless of the disk; nil: the disk decides

	mu    sync.Mutex // guards the fields below
	asked time.Time
	full  error
}

// fresh is how long the last measurement is used. A disk writes much less than the reserve in this time.
const fresh = 20 * time.Millisecond

// check implements log.Host.Room. It measures again when the last measurement is too old, so appends work again as soon
// as there is room. If the system cannot report the free space, check returns nil.
func (r *room) check() error {
	if r.refused != nil {
		return r.refused
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.asked) > fresh {
		r.asked, r.full = now, nil
		if free, err := storedir.FreeBytes(r.dir); err == nil && free < r.reserve {
			r.full = &log.FullError{Free: int64(free), Reserve: int64(r.reserve)}
		}
	}
	return r.full
}

// cacheRoom returns the check of the free space for snapshots and views. They may use half of the reserve, so a store
// that refuses appends can still be opened, read and closed.
func cacheRoom(dir string, reserve uint64) func() error {
	r := &room{dir: dir, reserve: reserve / 2}
	return r.check
}

// roomySnapshots writes no snapshots while the disk has no room.
type roomySnapshots struct {
	snapshot.Store
	files *snapshot.Files
	room  func() error
}

func newRoomySnapshots(dir string, room func() error) roomySnapshots {
	files := snapshot.NewFiles(filepath.Join(dir, "snapshots"))
	return roomySnapshots{files, files, room}
}

// Erase implements snapshot.Eraser.
func (s roomySnapshots) Erase(ctx context.Context, subjects ...events.Subject) error {
	return s.files.Erase(ctx, subjects...)
}

// Since implements snapshot.Eraser.
func (s roomySnapshots) Since() snapshot.Store {
	return roomySnapshots{s.files.Since(), s.files, s.room}
}

func (s roomySnapshots) Put(ctx context.Context, snap snapshot.Snapshot) error {
	if err := s.room(); err != nil {
		return err
	}
	return s.Store.Put(ctx, snap)
}

// isFull reports whether a write failed for lack of space or quota.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
