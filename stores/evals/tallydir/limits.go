package tallydir

import (
	"context"
	"runtime"
	"sync"
)

// Of the conversations that are imported at the same time, most wait for the server or the disk. Meanwhile small
// folders are in memory.
const (
	maxConversations = 12                // conversations at the same time
	maxHeld          = 4 * streamBeyond  // bytes of their folders
	heldStep         = streamBeyond / 16 // granularity of maxHeld in bytes
)

// limits limits the resources of conversations that are imported at the same time.
type limits struct {
	// scans limits concurrent scans, which only need a processor. One processor is left for the appends, so that the
	// server works from the first conversation on.
	scans chan struct{}

	asking sync.Mutex    // held by the caller that waits for memory
	held   chan struct{} // full if no more folders fit into memory
}

func newLimits() *limits {
	return &limits{scans: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), held: make(chan struct{}, maxHeld/heldStep)}
}

// hold waits until a folder of a size fits into memory. release frees the memory.
func (t *limits) hold(ctx context.Context, size int64) (release func(), err error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	n := 0
	release = func() {
		for range n {
			<-t.held
		}
	}
	for range min(size, streamBeyond)/heldStep + 1 {
		select {
		case t.held <- struct{}{}:
			n++
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

// scan calls f when a scan is allowed.
func (t *limits) scan(ctx context.Context, f func() error) error {
	select {
	case t.scans <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.scans }()
	return f()
}
