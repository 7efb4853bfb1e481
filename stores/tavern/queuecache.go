package tavern

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// queueCache holds a queue's open items in memory, in the order in which the queue hands them out. It folds the log and
// follows it. Items that are done are left out. All handles of a store on the queue share one cache. The cache is a
// hint: the log decides each claim, and a worker that lost gets an error.
type queueCache struct {
	st    *tally.Store
	queue *Queue
	all   *queueCaches
	about func(events.Subject) bool // whether a subject's records concern the queue
	users int                       // guarded by all.mu
	idle  *time.Timer               // guarded by all.mu: closes the cache after idleTimeout without users
	gone  chan struct{}             // closed when the cache no longer follows the log

	reading sync.Mutex // held while the cache reads up to the end of the log

	mu        sync.Mutex // guards the fields below
	work      *projector.Work
	at        events.Offset // the cache has folded the log up to here
	newest    time.Time     // the newest time seen in the log
	since     time.Time     // when the cache saw it, by the monotonic clock
	from      time.Time     // when the cache started: by the wall clock, or the log's time if that is later
	begun     time.Time     // the same moment by the monotonic clock
	entries   map[string]*cacheEntry
	ready     entryHeap
	timed     entryHeap
	flight    map[string]events.Offset // items that a worker of this process is claiming; 0, or the offset whose record says how the claim ended
	bodies    map[string]Item          // small bodies of open items
	room      int                      // bytes left for bodies
	ask       map[string]bool          // items that others wait for and that the cache does not know
	waiting   []chan struct{}          // workers, first come, first served
	contest   int                      // how often other processes were faster lately
	timer     *time.Timer
	stop      context.CancelFunc // stops following; nil before the first use
	over      bool               // forgotten: no timer is set any more
	followErr error              // why following ended
}

const (
	idleTimeout  = 30 * time.Second // a cache without users is kept this long
	maxBodyBytes = 16 << 20         // bytes of bodies that a cache keeps
	maxBody      = 64 << 10
	maxChoice    = 64            // a worker chooses among so many free items if others are faster
	maxPassed    = 4 * maxChoice // how often that choice may pass over an item
	maxFirst     = 8 * maxChoice // free items with which a cache starts if it only hands out
)

// queueCaches are the caches of a store. The store closes them.
type queueCaches struct {
	running sync.WaitGroup // caches that follow the log

	mu     sync.Mutex // guards the fields below
	closed bool
	of     map[events.Subject]*queueCache
}

func queueCachesOf(st *tally.Store) *queueCaches {
	return tally.Kept(st, func() *queueCaches { return &queueCaches{of: make(map[events.Subject]*queueCache)} })
}

// Close returns when no cache follows the log and no cache's timer is set.
func (all *queueCaches) Close() {
	all.mu.Lock()
	all.closed = true
	for _, qc := range all.of {
		qc.forget()
	}
	all.mu.Unlock()
	all.running.Wait()
}

// enter returns the queue's cache with all open items, as of some time after the call began. The caller calls leave
// when it is done.
func (q *Queue) enter(ctx context.Context) (*queueCache, error) {
	qc, err := q.enterFirst(ctx)
	if err != nil {
		return nil, err
	}
	if err := qc.load(ctx, 0); err != nil {
		qc.leave()
		return nil, err
	}
	return qc, nil
}

// enterFirst is enter for callers that need only the next items or the queue's own state. All free items but the first
// ones may be missing.
func (q *Queue) enterFirst(ctx context.Context) (*queueCache, error) {
	if err := q.sub.Validate(); err != nil {
		return nil, err
	}
	all := queueCachesOf(q.st)
	all.mu.Lock()
	qc := all.of[q.sub]
	if qc == nil {
		qc = newQueueCache(q, all)
		all.of[q.sub] = qc
	}
	qc.users++
	all.mu.Unlock()
	if err := qc.start(ctx); err != nil {
		qc.leave()
		return nil, err
	}
	return qc, nil
}

func newQueueCache(q *Queue, all *queueCaches) *queueCache {
	qc := &queueCache{st: q.st, queue: q, all: all, gone: make(chan struct{}), entries: make(map[string]*cacheEntry), flight: make(map[string]events.Offset), ask: make(map[string]bool),
		bodies: make(map[string]Item), room: maxBodyBytes, work: projector.NewWork(q.sub.Namespace, q.id, true)}
	qc.about = qc.work.Concerns
	qc.ready.less = func(x, y *cacheEntry) bool { return qc.work.Queue.CompareTurn(x.item, y.item) < 0 }
	qc.timed.less = func(x, y *cacheEntry) bool {
		return cmp.Or(cmp.Compare(x.due, y.due), x.item.CompareOrder(y.item)) < 0
	}
	return qc
}

// leave ends a caller's use of the cache.
func (qc *queueCache) leave() {
	qc.all.mu.Lock()
	defer qc.all.mu.Unlock()
	if qc.users--; qc.users > 0 || qc.all.closed || qc.isOver() {
		return
	}
	if qc.idle == nil {
		qc.idle = time.AfterFunc(idleTimeout, qc.close)
		return
	}
	qc.idle.Reset(idleTimeout)
}

func (qc *queueCache) isOver() bool {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	return qc.over
}

// close forgets the cache if it has no users.
func (qc *queueCache) close() {
	qc.all.mu.Lock()
	defer qc.all.mu.Unlock()
	if qc.users == 0 {
		qc.forget()
	}
}

// forget removes the cache from the store's and stops its timers and its follower. The caller holds all.mu.
func (qc *queueCache) forget() {
	if qc.all.of[qc.queue.sub] == qc {
		delete(qc.all.of, qc.queue.sub)
	}
	if qc.idle != nil {
		qc.idle.Stop()
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.over = true
	if qc.stop != nil {
		qc.stop()
	}
	if qc.timer != nil {
		qc.timer.Stop()
	}
}

// start makes the cache follow the log. Only the first call does something.
func (qc *queueCache) start(ctx context.Context) error {
	qc.mu.Lock()
	started := qc.stop != nil
	qc.mu.Unlock()
	if started {
		return nil
	}
	if err := qc.catchUp(ctx); err != nil {
		return err
	}
	from, err := qc.st.LeaseTime(ctx)
	if err != nil {
		return err
	}
	qc.all.mu.Lock()
	defer qc.all.mu.Unlock()
	qc.mu.Lock()
	defer qc.mu.Unlock()
	if qc.all.closed {
		return fmt.Errorf("queue %q: %w: the store is closed", qc.queue.id, log.ErrUnavailable)
	}
	if qc.stop == nil {
		qc.from, qc.begun = from, time.Now()
		var life context.Context
		life, qc.stop = context.WithCancel(log.NoteDamage(context.WithoutCancel(ctx), nil)) // until forget
		after := qc.at
		qc.all.running.Go(func() { qc.follow(life, after) })
	}
	return nil
}

// catchUp folds everything that is durable now.
func (qc *queueCache) catchUp(ctx context.Context) error {
	qc.reading.Lock()
	defer qc.reading.Unlock()
	head, err := qc.st.Log.Durable(ctx)
	if err != nil {
		return err
	}
	now, err := qc.st.LogTime(ctx)
	if err != nil {
		return err
	}
	qc.mu.Lock()
	after := qc.at
	qc.advanceTime(now)
	qc.mu.Unlock()
	if after == 0 {
		err := qc.begin(ctx, maxFirst)
		if err != nil {
			return err
		}
		return qc.settleAwaited(ctx)
	}
	if after < head {
		r := events.Range{Namespace: qc.queue.sub.Namespace, Kind: events.KindSession, After: after, Upto: head}
		if err := qc.fold(ctx, qc.st.Log.Read(ctx, r)); err != nil {
			return err
		}
	}
	qc.mu.Lock()
	qc.at = max(qc.at, head)
	qc.mu.Unlock()
	return qc.settleAwaited(ctx)
}

// follow folds records as they arrive.
func (qc *queueCache) follow(life context.Context, after events.Offset) {
	r := events.Range{Namespace: qc.queue.sub.Namespace, Kind: events.KindSession, After: after}
	err := qc.fold(life, qc.st.Log.Follow(life, r))
	if life.Err() != nil {
		err = nil // only callers after Close wait for the cache
	}
	qc.all.mu.Lock()
	qc.forget()
	qc.all.mu.Unlock()
	qc.mu.Lock()
	qc.followErr = cmp.Or(err, error(log.ErrUnavailable))
	qc.mu.Unlock()
	close(qc.gone)
}

// readable yields records, those of the queue with their data. It skips records that cannot be read.
func (qc *queueCache) readable(ctx context.Context, records iter.Seq2[events.Record, error]) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range records {
			if err == nil && qc.about(rec.Subject) {
				rec, err = projector.Resolve(ctx, qc.st.Log, rec, qc.st.MaxValue())
			}
			if _, damaged := errors.AsType[*events.DamageError](err); !damaged && !yield(rec, err) {
				return
			}
		}
	}
}

// fold folds records as they arrive.
func (qc *queueCache) fold(ctx context.Context, records iter.Seq2[events.Record, error]) error {
	for rec, err := range qc.readable(ctx, records) {
		if err != nil {
			return err
		}
		if qc.applyRecord(rec) {
			if err := qc.settleAwaited(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyRecord folds the record after the last one. It reports whether the cache must ask the log about other items.
func (qc *queueCache) applyRecord(rec events.Record) (ask bool) {
	var f projector.Fact
	concerns := qc.about(rec.Subject)
	if concerns {
		f = projector.Decode(rec)
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	if qc.advanceTime(rec.Recorded) {
		qc.expire()
		qc.arm()
		qc.wake()
	}
	if rec.Offset <= qc.at {
		return false
	}
	qc.at = rec.Offset
	if !concerns {
		return false
	}
	for _, i := range qc.work.Apply(f) {
		if i.At == rec.Offset {
			qc.keepBody(f, i)
		}
		qc.refile(i)
	}
	if _, id, ok := projector.ItemOf(rec.Subject.ID); ok && qc.work.Items[id] == nil && qc.work.IsAwaited(id) {
		qc.ask[id] = true // an item that others wait for may be done now
	}
	if rec.Type == events.TypeSessionCreated || rec.Type == events.TypeSessionUpdated {
		qc.sort()
	}
	for id, at := range qc.flight {
		if i := qc.work.Items[id]; at != 0 && at <= qc.at && i != nil {
			qc.refile(i)
		}
	}
	qc.wake()
	return len(qc.ask) > 0
}

// sort indexes all items again, because the order may have changed. The caller holds mu.
func (qc *queueCache) sort() {
	qc.ready.list, qc.timed.list = nil, nil
	for _, s := range qc.entries {
		s.in = nil
	}
	for _, i := range qc.work.Items {
		qc.refile(i)
	}
}

// keepBody keeps the body of a new item, if it is small.
func (qc *queueCache) keepBody(f projector.Fact, i *projector.QueueItem) {
	if n := len(f.Data); n <= maxBody && n <= qc.room {
		qc.bodies[i.ID] = itemIn(f, *i)
		qc.room -= len(qc.bodies[i.ID].Body)
	}
}

func (qc *queueCache) dropBody(id string) {
	if it, ok := qc.bodies[id]; ok {
		qc.room += len(it.Body)
		delete(qc.bodies, id)
	}
}

// advanceTime notes the time of a record. It reports whether that moved the cache's clock forward. The caller holds mu.
func (qc *queueCache) advanceTime(recorded time.Time) bool {
	if !qc.newest.IsZero() && !recorded.After(qc.nowLocked()) {
		return false
	}
	qc.newest, qc.since = recorded, time.Now()
	return true
}

func (qc *queueCache) nowLocked() time.Time { return qc.newest.Add(time.Since(qc.since)) }

// refile moves an item to the heap where it belongs now, or removes it. The caller holds mu.
func (qc *queueCache) refile(i *projector.QueueItem) {
	s := qc.entries[i.ID]
	if s != nil {
		s.leave()
	}
	at, taken := qc.flight[i.ID]
	if taken && (at == 0 || at > qc.at) {
		return // a record that the cache has not folded yet decides about the item
	}
	delete(qc.flight, i.ID)
	if qc.work.Items[i.ID] != i || i.Ended != 0 {
		delete(qc.entries, i.ID)
		qc.dropBody(i.ID)
		return
	}
	if s == nil {
		s = &cacheEntry{item: i}
		qc.entries[i.ID] = s
	}
	if waits := qc.work.Waits(i); i.Fence == 0 && len(waits) > 0 {
		for _, id := range qc.work.Unsettled(i) {
			qc.ask[id] = true
		}
		return
	}
	due := i.Due()
	if due.IsZero() || !due.After(qc.nowLocked()) {
		heap.Push(&qc.ready, s)
		return
	}
	s.due = due.UnixMilli()
	heap.Push(&qc.timed, s)
	qc.arm()
}

// settleAwaited asks the log whether items are done that others wait for and that the cache does not know. An item that
// ends later is seen when its record arrives.
func (qc *queueCache) settleAwaited(ctx context.Context) error {
	qc.mu.Lock()
	ask := qc.ask
	qc.ask = make(map[string]bool)
	serial := qc.work.Queue.Settings.Serial
	qc.mu.Unlock()
	for id := range ask {
		done, err := qc.queue.isDone(ctx, id, serial)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		qc.mu.Lock()
		for _, i := range qc.work.Settle(id) {
			qc.refile(i)
		}
		qc.wake()
		qc.mu.Unlock()
	}
	return nil
}

// arm sets the timer for the next item that becomes due. The caller holds mu.
func (qc *queueCache) arm() {
	first := qc.timed.first()
	if first == nil || qc.over {
		return
	}
	wait := waitFor(time.UnixMilli(first.due), qc.nowLocked())
	if qc.timer == nil {
		qc.timer = time.AfterFunc(wait, qc.onTimer)
		return
	}
	qc.timer.Reset(wait)
}

// waitFor returns how long to wait until a time, at most a day. A lease may end later than a Duration can express.
func waitFor(at, now time.Time) time.Duration {
	return min(max(0, at.Sub(now)), 24*time.Hour) + time.Millisecond
}

// onTimer runs when an item becomes due.
func (qc *queueCache) onTimer() {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.expire()
	qc.arm()
	qc.wake()
}

// expire moves the items that are due now to where they belong. The caller holds mu.
func (qc *queueCache) expire() {
	now := qc.nowLocked().UnixMilli()
	for s := qc.timed.first(); s != nil && s.due <= now; s = qc.timed.first() {
		qc.refile(s.item)
		if s.in == &qc.timed {
			return // not due yet, by less than a millisecond
		}
	}
}

// reread reads an item's session again.
func (qc *queueCache) reread(ctx context.Context, i *projector.QueueItem, fresh projector.QueueItem) error {
	fresh.Attempts, fresh.Series, fresh.Last, fresh.Ended, fresh.Outcome, fresh.Error = 0, 0, 0, 0, "", ""
	fresh.Fence, fresh.Worker, fresh.Until = 0, "", 0
	for rec, err := range qc.st.Log.Read(ctx, events.Range{Subject: qc.queue.itemSubject(i.ID)}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			fresh.Last = damage.Offset
			continue
		}
		if err != nil {
			return err
		}
		fresh.Apply(projector.Decode(rec))
		fresh.Last = rec.Offset
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	if qc.work.Items[i.ID] == i && fresh.Last > i.Last {
		after := i.After
		*i = fresh
		i.After = after
	}
	return nil
}

// cacheEntry is an item that is ready, or will be at a known time.
type cacheEntry struct {
	item  *projector.QueueItem
	due   int64      // Unix milliseconds, if the item is not ready yet
	in    *entryHeap // the heap that holds the entry
	index int        // the entry's index there

	passed int // how often workers chose another item although this one was ready
}

// entryHeap is a heap of entries, the least first.
type entryHeap struct {
	list []*cacheEntry
	less func(x, y *cacheEntry) bool
}

func (h *entryHeap) Len() int           { return len(h.list) }
func (h *entryHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

func (h *entryHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

func (h *entryHeap) Push(x any) {
	s := x.(*cacheEntry)
	s.in, s.index = h, len(h.list)
	h.list = append(h.list, s)
}

func (h *entryHeap) Pop() any {
	last := len(h.list) - 1
	s := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	s.in = nil
	return s
}

// first returns the least entry, or nil.
func (h *entryHeap) first() *cacheEntry {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// leave removes an entry from its heap.
func (s *cacheEntry) leave() {
	if s.in != nil {
		heap.Remove(s.in, s.index)
	}
}
