package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallylog/tally/events"
)

// A Sync makes everything durable that was stored when it is called, then returns. Its argument is the stream that was
// written to last; if that differs from the call before, the Sync covers the earlier streams too. A log with a Sync
// acknowledges an append only after a sync that began after the append was stored: one sync for all that are waiting.
//
// After an error the log acknowledges nothing until [Log.Recover]: the system may have thrown away pages that it could
// not write, so nobody knows how much a later sync covers.
type Sync func(stream string) error

// horizon is the durable watermark of a log. Readers see no record beyond it unless they ask to.
type horizon interface {
	// durable returns the highest offset up to which everything is safe.
	durable(ctx context.Context) (events.Offset, error)
	// await returns when an offset is safe that was read in an era.
	await(ctx context.Context, at events.Offset, e *era) error
}

// era is the time between two calls of [Log.Recover]. A record that was stored or read in an earlier one may be gone,
// and another record may have its offset. A log without a Sync has no eras.
type era struct {
	ctx  context.Context // ends with the era; then errEra is its cause
	end  context.CancelCauseFunc
	kept events.Offset // once another era has begun: records up to here are as durable as they were
}

func newEra(life context.Context) *era {
	e := new(era)
	e.ctx, e.end = context.WithCancelCause(life)
	return e
}

// isOver reports whether a Recover has begun since.
func (e *era) isOver() bool { return e != nil && e.ctx.Err() != nil }

// errEra says that an era has ended.
var errEra = errors.New("the log recovers, and its last records may be gone")

// committer makes stored appends durable, many with one sync. While a sync runs, the next group is already being
// stored.
type committer struct {
	sync     func() error
	mark     func(events.Offset)
	observer Observer
	idle     time.Duration // how long appends that nobody waits for stay unsynced

	life context.Context
	era  atomic.Pointer[era] // changes while mu is held

	kick chan struct{} // a caller waits
	done chan struct{} // run has ended

	coming  atomic.Int64 // appends being stored
	follows limit

	busy sync.Mutex // held during a sync and its announcement

	mu      sync.Mutex    // guards the fields below
	stored  events.Offset // the highest offset that the backend acknowledged
	synced  events.Offset // covered by a sync
	safe    events.Offset // the durable watermark
	batches []*hold       // being stored, in the order in which they began
	waits   []waiter      // ordered by offset
	err     error         // of a failed sync, until revive
	over    bool          // run has ended: holds that are left stay
	tell    func(events.Offset)
}

// background is how long an append that did not ask for a sync stays unsynced.
const background = time.Second

// newCommitter syncs everything up to head. The caller runs it until life ends.
func newCommitter(life context.Context, s func() error, mark func(events.Offset), seen Observer, head events.Offset) (*committer, error) {
	if err := s(); err != nil {
		return nil, fmt.Errorf("log: open: sync: %w", err)
	}
	mark(head)
	c := &committer{sync: s, mark: mark, observer: seen, idle: background, life: life, kick: make(chan struct{}, 1), done: make(chan struct{}),
		stored: head, synced: head, safe: head}
	c.era.Store(newEra(life))
	go c.run(life)
	return c, nil
}

// run syncs whenever a caller waits, once a second otherwise, and a last time at the end.
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
			c.finish()
			return
		}
		c.group()
	}
}

// finish wakes the waiters that are left: a batch below them was not completed, and the next owner does it.
func (c *committer) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, w := range c.waits {
		close(w.over)
	}
	c.waits = nil
}

// group syncs everything that is stored by now.
func (c *committer) group() {
	c.busy.Lock()
	defer c.busy.Unlock()
	c.commit()
}

// A sync is expensive. While many appends are being stored, and more than are waiting for one, the sync is delayed for
// a moment, so that the coming ones share it. (Measured on two cores: this makes 256 producers a sixth faster. With 16
// producers it would make them a fifth slower.)
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
		// The backend stores in the order of offsets: when it acknowledges one, the messages below it are in the
		// system's memory too, and this sync covers them.
		if err = c.sync(); err == nil {
			c.observer.Synced(int(unsynced), time.Since(begun))
		}
	}
	if err == nil && shown > before {
		c.mark(shown)
	}
	c.mu.Lock()
	if err != nil {
		c.err = fmt.Errorf("%w: sync failed: %v", ErrUnavailable, err)
	} else {
		// The commit point: from here on a power cut takes no record up to shown.
		c.synced, c.safe = target, shown
	}
	c.release()
	tell := c.tell
	c.mu.Unlock()
	if err == nil && tell != nil && shown > before {
		tell(shown)
	}
}

// hold keeps the watermark below a batch that is being stored, so that no reader sees a part of it.
type hold struct {
	at events.Offset // limit of the watermark; guarded by the committer's mu
}

// hold begins a hold. Beside other batches it is where theirs are: the last record so far may be in the middle of one of
// them, and the watermark must not stop there when that one is over and the new one is not.
func (c *committer) hold() *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &hold{at: c.shown()}
	c.batches = append(c.batches, h)
	return h
}

// before returns an offset that is below every record of the hold's batch.
func (c *committer) before(h *hold) events.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.at
}

// letGo ends a hold: all of the batch is stored, or nothing.
func (c *committer) letGo(h *hold) {
	c.mu.Lock()
	c.batches = slices.DeleteFunc(c.batches, func(u *hold) bool { return u == h })
	waited := c.isAwaited()
	c.mu.Unlock()
	if waited {
		c.ask()
	}
}

// held reports whether a hold keeps the watermark below an offset.
func (c *committer) held(at events.Offset) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.batches) > 0 && at > c.shown()
}

// shown returns how far the watermark may move. The caller holds mu.
func (c *committer) shown() events.Offset {
	if len(c.batches) > 0 {
		return max(c.safe, min(c.stored, c.batches[0].at))
	}
	return c.stored
}

// announce sets the function that hears of every move of the watermark. It may be nil.
func (c *committer) announce(tell func(events.Offset)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell = tell
}

// note tells the committer the offset of an append that was stored in an era.
func (c *committer) note(at events.Offset, e *era) {
	c.mu.Lock()
	if c.era.Load() == e {
		c.stored = max(c.stored, at)
	}
	c.mu.Unlock()
}

// drain syncs everything that was noted, also a batch that the watermark does not show yet.
func (c *committer) drain() error {
	c.group()
	return c.failed()
}

// failed returns the error of a failed sync. After it nothing can be acknowledged.
func (c *committer) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// revive resumes after a failed sync, and begins an era. head is the last offset that the backend has now; records that
// are gone were never acknowledged.
func (c *committer) revive(head events.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.era.Load().kept = c.safe
	c.era.Store(newEra(c.life))
	c.err, c.stored, c.synced = nil, max(head, c.safe), c.safe
	for _, u := range c.batches {
		u.at = c.safe // the stored part of the batch may be gone, and is stored again at other offsets
	}
	for _, w := range c.waits {
		close(w.over)
	}
	c.waits = nil
}

func (c *committer) durable(context.Context) (events.Offset, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.safe, nil
}

// waiter waits for an offset to be safe.
type waiter struct {
	at      events.Offset
	over    chan struct{} // closed when the offset is safe, a sync failed, or the log is closed
	patient bool          // does not start a sync
}

// isAwaited reports whether a waiter needs a sync. The caller holds mu.
func (c *committer) isAwaited() bool {
	return slices.ContainsFunc(c.waits, func(w waiter) bool { return !w.patient })
}

// release wakes the waiters whose offset is safe, in the order of their offsets. The caller holds mu.
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

// waiterAt returns the index of the first waiter for this offset or a higher one.
func (c *committer) waiterAt(at events.Offset) (int, bool) {
	return slices.BinarySearchFunc(c.waits, at, func(w waiter, at events.Offset) int { return cmp.Compare(w.at, at) })
}

// enlist returns a channel that is closed when an offset is safe, a sync failed, the era is over or the log is closed.
// It returns nil if one of them is already so.
func (c *committer) enlist(at events.Offset, e *era, patient bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.safe >= at || c.err != nil || c.over || c.era.Load() != e {
		return nil
	}
	w := waiter{at, make(chan struct{}), patient}
	i := len(c.waits)
	if i > 0 && c.waits[i-1].at > at { // most arrive in order
		i, _ = c.waiterAt(at)
	}
	c.waits = slices.Insert(c.waits, i, w)
	return w.over
}

// lead syncs in the caller's goroutine, which saves a wake-up. If a sync is under way, it does nothing: the committer
// begins the next one. A caller that leads therefore waits for the disk, even if its ctx ends.
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

// ask makes run begin a sync.
func (c *committer) ask() {
	select {
	case c.kick <- struct{}{}:
	default: // a request is pending
	}
}

// await implements horizon. If ctx ends first or the sync failed, the offset may still be safe: the error is
// ErrUnknown.
func (c *committer) await(ctx context.Context, at events.Offset, e *era) error {
	return c.awaitFor(ctx, at, e, nil)
}

// A follower sees an append as soon as it is stored. Often its producer is about to store more, and then asks for one
// sync for all. If each follower started a sync at once, appends that asked for none would get one, and the producer
// would wait for it first. So a follower waits this long for a producer to start the sync. Tests change it.
var courtesy = 5 * time.Millisecond

// follow is await for a follower.
func (c *committer) follow(ctx context.Context, at events.Offset, e *era) error {
	if over := c.enlist(at, e, true); over != nil {
		select {
		case <-over:
		case <-c.follows.after(courtesy):
		case <-ctx.Done():
		}
	}
	return c.await(ctx, at, e)
}

// errOver is why nobody moves the watermark any more.
var errOver = errors.New("the log is closed")

// awaitFor is await that also ends when patience does. It asks for the sync itself: the append that stored the record
// may not know that it did, and would then never ask.
func (c *committer) awaitFor(ctx context.Context, at events.Offset, e *era, patience <-chan struct{}) error {
	c.note(at, e)
	// If a hold covers the offset, a sync now would be wasted: letGo asks for the sync that moves the watermark past
	// it.
	if safe, _ := c.durable(ctx); safe < at && !c.held(at) {
		c.lead()
	}
	err := error(nil)
	if over := c.enlist(at, e, false); over != nil {
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
	safe := c.safe
	if c.era.Load() != e {
		safe, err = e.kept, errEra
	}
	if safe >= at {
		return nil
	}
	return fmt.Errorf("%w: record %v is stored, but not known to be on disk: %v", ErrUnknown, at, cmp.Or(err, c.err, errOver))
}
