package log

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallylog/tally/events"
)

// A Sync makes everything durable that was stored when it is called, and returns
// when it is. It is told the stream that was written to last; when that is another
// one than before, what the others got is to be made durable too. A log that is
// given one acknowledges an append only after a sync that began behind its storing:
// one sync for all that are waiting.
//
// After an error nothing is acknowledged any more until [Log.Recover]: the system may
// have thrown away what it could not write, so nobody knows what a later sync covers.
type Sync func(stream string) error

// horizon is how far the log is safe from a power cut: the durable watermark. No
// reader sees beyond it unless it asks to.
type horizon interface {
	// durable returns the highest offset below which everything is safe.
	durable(ctx context.Context) (events.Offset, error)
	// await returns when an offset is safe.
	await(ctx context.Context, at events.Offset) error
}

// committer makes what is stored durable, many appends with one sync. While a sync
// runs, the next group is already being stored.
type committer struct {
	sync     func() error
	mark     func(events.Offset)
	observer Observer
	idle     time.Duration // how long what nobody waits for stays unsynced

	kick chan struct{} // somebody waits
	done chan struct{} // run has ended

	coming atomic.Int64 // appends that are being stored

	busy sync.Mutex // held during a sync and what follows from it

	mu      sync.Mutex    // guards what follows
	stored  events.Offset // the highest offset that the backend acknowledged
	synced  events.Offset // up to which a sync covered it
	safe    events.Offset // the durable watermark
	batches []*hold       // that are being stored, in the order in which they were begun
	waits   []waiter      // by offset
	err     error         // of a sync that failed, until revive
	tell    func(events.Offset)
}

// background is how long an append that asked for no more stays in memory only.
const background = time.Second

// newCommitter makes everything durable up to the present head, and runs until
// life ends.
func newCommitter(life context.Context, s func() error, mark func(events.Offset), seen Observer, head events.Offset) (*committer, error) {
	if err := s(); err != nil {
		return nil, fmt.Errorf("log: open: sync: %w", err)
	}
	mark(head)
	c := &committer{sync: s, mark: mark, observer: seen, idle: background, kick: make(chan struct{}, 1), done: make(chan struct{}),
		stored: head, synced: head, safe: head}
	go c.run(life)
	return c, nil
}

// run syncs whenever somebody waits, once a second if nobody does, and a last time
// at the end.
func (c *committer) run(life context.Context) {
	defer close(c.done)
	tick := time.NewTicker(c.idle)
	defer tick.Stop()
	for {
		select {
		case <-c.kick:
		case <-tick.C:
		case <-life.Done():
			c.group()
			return
		}
		c.group()
	}
}

// group makes durable what is stored by now.
func (c *committer) group() {
	c.busy.Lock()
	defer c.busy.Unlock()
	c.commit()
}

// A sync is dear. So while many appends are being stored, and more than wait for one,
// it is put off for a moment: those that come soon share it. (Measured with two cores:
// 256 producers are a sixth faster for it, 16 would be a fifth slower.)
const (
	many    = 32 // appends
	moment  = 100 * time.Microsecond
	moments = 8
)

func (c *committer) gather() {
	for range moments {
		coming := c.coming.Load()
		c.mu.Lock()
		enough := coming < many || int64(len(c.waits)) >= coming
		c.mu.Unlock()
		if enough {
			return
		}
		time.Sleep(moment)
	}
}

// commit syncs once and wakes the waiters that the sync covers. The caller holds busy.
func (c *committer) commit() {
	c.gather()
	c.mu.Lock()
	target, shown, failed := c.stored, c.shown(), c.err != nil
	before, unsynced := c.safe, target-c.synced
	c.mu.Unlock()
	if failed || unsynced == 0 && shown == before {
		return
	}
	err := error(nil)
	if unsynced > 0 {
		begun := time.Now()
		// The backend stores in the order of offsets: when one is acknowledged, those
		// below it are in the system's memory too, and this sync covers them.
		if err = c.sync(); err == nil {
			c.observer.Synced(int(unsynced), time.Since(begun))
		}
	}
	if err == nil && shown > before {
		c.mark(shown)
	}
	c.mu.Lock()
	if err != nil {
		c.err = fmt.Errorf("%w: the disk did not take what was written: %v", ErrUnavailable, err)
	} else {
		// The commit point: from here on a power cut takes nothing up to shown.
		c.synced, c.safe = target, shown
	}
	c.release()
	tell := c.tell
	c.mu.Unlock()
	if err == nil && tell != nil && shown > before {
		tell(shown)
	}
}

// hold keeps the watermark below a unit that is being stored: nobody sees a part of it.
type hold struct {
	at events.Offset // the watermark goes no further; guarded by the committer's mu
}

// hold begins one.
func (c *committer) hold() *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &hold{at: c.stored}
	c.batches = append(c.batches, h)
	return h
}

// before returns an offset behind which all of a unit is.
func (c *committer) before(h *hold) events.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.at
}

// letGo ends one: all of the unit is stored, or nothing.
func (c *committer) letGo(h *hold) {
	c.mu.Lock()
	c.batches = slices.DeleteFunc(c.batches, func(u *hold) bool { return u == h })
	waited := c.isAwaited()
	c.mu.Unlock()
	if waited {
		c.ask()
	}
}

// held reports whether a unit has to be whole before an offset can be shown.
func (c *committer) held(at events.Offset) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.batches) > 0 && at > c.shown()
}

// shown is how far the watermark could go. The caller holds mu.
func (c *committer) shown() events.Offset {
	if len(c.batches) > 0 {
		return max(c.safe, min(c.stored, c.batches[0].at))
	}
	return c.stored
}

// announce has others told of every move of the watermark; nil: nobody.
func (c *committer) announce(tell func(events.Offset)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell = tell
}

// note tells the committer what the backend stored.
func (c *committer) note(at events.Offset) {
	c.mu.Lock()
	c.stored = max(c.stored, at)
	c.mu.Unlock()
}

// drain makes durable what was noted, also of a unit of which the watermark shows nothing
// yet.
func (c *committer) drain() error {
	c.group()
	return c.failed()
}

// failed returns the error of a sync that failed: nothing can be acknowledged after
// it.
func (c *committer) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// revive begins anew after a sync that failed. head is the last offset that the backend
// has now; what was stored before and is gone was never acknowledged.
func (c *committer) revive(head events.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.stored, c.synced = nil, max(head, c.safe), c.safe
	for _, u := range c.batches {
		u.at = c.safe // what was stored of it may be gone, and comes again elsewhere
	}
}

func (c *committer) durable(context.Context) (events.Offset, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.safe, nil
}

// waiter waits for an offset to be safe.
type waiter struct {
	at      events.Offset
	over    chan struct{} // closed then, or when a sync failed
	patient bool          // no sync is begun for it
}

// isAwaited reports whether a sync is waited for. The caller holds mu.
func (c *committer) isAwaited() bool {
	return slices.ContainsFunc(c.waits, func(w waiter) bool { return !w.patient })
}

// release wakes those whose wait is over, in the order of their offsets. The caller
// holds mu.
func (c *committer) release() {
	n := len(c.waits)
	if c.err == nil {
		n, _ = c.waiterAt(c.safe + 1)
	}
	for _, w := range c.waits[:n] {
		close(w.over)
	}
	c.waits = slices.Delete(c.waits, 0, n)
}

// waiterAt returns the index of the first waiter for an offset or one above it.
func (c *committer) waiterAt(at events.Offset) (int, bool) {
	return slices.BinarySearchFunc(c.waits, at, func(w waiter, at events.Offset) int { return cmp.Compare(w.at, at) })
}

// enlist returns a channel that is closed when an offset is safe or a sync failed; nil
// if that is so already.
func (c *committer) enlist(at events.Offset, patient bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.safe >= at || c.err != nil {
		return nil
	}
	w := waiter{at, make(chan struct{}), patient}
	i := len(c.waits)
	if i > 0 && c.waits[i-1].at > at { // mostly they come in order
		i, _ = c.waiterAt(at)
	}
	c.waits = slices.Insert(c.waits, i, w)
	return w.over
}

// lead makes durable what is stored by now, here and without waking anybody, if nobody
// else is at it. A caller that meets a sync under way waits for the next one,
// which the committer begins. (So a caller that leads is as patient as the disk.)
func (c *committer) lead() {
	if !c.busy.TryLock() {
		return
	}
	c.commit()
	c.busy.Unlock()
	c.mu.Lock()
	others := c.isAwaited()
	c.mu.Unlock()
	if others {
		c.ask()
	}
}

// ask has a sync begin after this.
func (c *committer) ask() {
	select {
	case c.kick <- struct{}{}:
	default: // one is asked for already
	}
}

// await implements horizon. That ctx ends first, or that the sync failed, says
// nothing about whether the offset is safe: ErrUnknown.
func (c *committer) await(ctx context.Context, at events.Offset) error {
	return c.awaitFor(ctx, at, nil)
}

// A follower hears of an append as soon as that is stored, and often the same producer is
// about to store more, and then to ask for the sync of all of it. If each follower had a sync
// begun at once, that would be one more for each append that asked for none, and the producer
// would wait for its end first. So it lets producers begin for so long. Tests change it.
var courtesy = 5 * time.Millisecond

// follow is await of a follower.
func (c *committer) follow(ctx context.Context, at events.Offset) error {
	if over := c.enlist(at, true); over != nil {
		patience := timers.start(courtesy)
		defer timers.stop(patience)
		select {
		case <-over:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	return c.await(ctx, at)
}

// awaitFor is await that also ends when patience does. Whoever waits for a record has seen that
// it is stored; the append that stored it may never have heard so, and then nobody else says it.
func (c *committer) awaitFor(ctx context.Context, at events.Offset, patience <-chan time.Time) error {
	c.note(at)
	// What is behind the beginning of a unit is shown when that is whole: a sync before
	// then would be one more than is needed, and letGo asks for the one that counts.
	if safe, _ := c.durable(ctx); safe < at && !c.held(at) {
		c.lead()
	}
	err := error(nil)
	if over := c.enlist(at, false); over != nil {
		if !c.held(at) {
			c.ask()
		}
		select {
		case <-over:
		case <-patience:
			err = context.DeadlineExceeded
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.safe >= at {
		return nil
	}
	return fmt.Errorf("%w: %v was stored, and is not known to be on disk: %v", ErrUnknown, at, cmp.Or(err, c.err))
}
