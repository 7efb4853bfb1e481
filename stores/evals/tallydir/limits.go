package tallydir

import (
	"context"
	"runtime"
	"sync"
)

// Of the conversations that are imported at the same time, most wait: for the server,
// for the disk. Small folders are kept in memory meanwhile.
const (
	maxConversations = 12                // conversations at the same time
	maxHeld          = 4 * streamBeyond  // bytes of their folders
	heldStep         = streamBeyond / 16 // in which those are counted
)

// turns says whose turn it is among conversations that are imported at the same time.
type limits struct {
	// scans has room for those that are scanned, which takes nothing but a processor: one
	// processor is left to what was scanned, so that the server has something to do from
	// the first conversation on and not only behind the last.
	scans chan struct{}

	asking sync.Mutex    // held by the caller that waits for memory
	held   chan struct{} // full when no more folders may be in memory
}

func newLimits() *limits {
	return &limits{scans: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), held: make(chan struct{}, maxHeld/heldStep)}
}

// hold returns when there is room for a folder of a size. release gives it back.
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

// scan calls f when one may scan.
func (t *limits) scan(ctx context.Context, f func() error) error {
	select {
	case t.scans <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.scans }()
	return f()
}
