package embedded

import (
	"math"
	"sync"
	"time"

	"github.com/tallylog/tally/log"
)

// syncEach is what SyncMethod says where nothing better is proven.
const syncEach = "every message is synced before its acknowledgement (SyncAlways)"

// reserve is the room on disk that a store leaves free: an append is refused before
// the system refuses a write, since from a failed write the server does not
// recover, and closing, reading and recovering need some room too.
const reserve = 64 << 20

// unlimited is how much the server may store by its own account. It counts what it
// wrote, not what the disk has left; room looks at the disk.
const unlimited = math.MaxInt64 / 4

// room watches how much is free on the disk of a directory.
type room struct {
	dir     string
	reserve uint64

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
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.asked) > fresh {
		r.asked, r.full = now, nil
		if free, err := FreeBytes(r.dir); err == nil && free < r.reserve {
			r.full = &log.FullError{Free: int64(free), Reserve: int64(r.reserve)}
		}
	}
	return r.full
}
