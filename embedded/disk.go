package embedded

import (
	"context"
	"errors"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/snapshot"
)

// Reserve is the room on disk that a store leaves free: an append is refused before
// the system refuses a write, since from a failed write the server does not
// recover, and closing, reading and recovering need some room too.
const Reserve = 64 << 20

// unlimited is how much the server may store by its own account. It counts what it
// wrote, not what the disk has left; room looks at the disk.
const unlimited = math.MaxInt64 / 4

// room watches how much is free on the disk of a directory.
type room struct {
	dir     string
	reserve uint64
	refused error // whatever is free; nil: the disk decides

	mu    sync.Mutex // guards what follows
	asked time.Time
	full  error
}

// fresh is how long an answer of the system is good for: at the speed of a disk,
// much less than the reserve is written in it.
const fresh = 20 * time.Millisecond

// check is the Room of a log. It asks the disk each time anew, so that appends work
// again as soon as there is room. A disk that cannot be asked has room.
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

// cacheRoom is the Room of what can be made again. It leaves half of the reserve alone,
// so that a store whose appends are refused can still be opened, read and closed.
func cacheRoom(dir string, most uint64) func() error {
	r := &room{dir: dir, reserve: most / 2}
	return r.check
}

// roomySnapshots writes no snapshot where there is no room for one.
type roomySnapshots struct {
	snapshot.Store
	room func() error
}

func (s roomySnapshots) Put(ctx context.Context, snap snapshot.Snapshot) error {
	if err := s.room(); err != nil {
		return err
	}
	return s.Store.Put(ctx, snap)
}

// isFull reports whether the system had no room for a write.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
