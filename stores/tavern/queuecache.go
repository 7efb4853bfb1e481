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

// board is what a process knows of a queue: the fold of what the log has of it, kept up to
// date by following, without what is done, and in the order in which items are handed out.
// All handles on the queue share it. The board is a hint: the log decides each claim, and a
// worker that lost gets an error.
type queueCache struct {
	st    *tally.Store
	queue *Queue
	all   *queueCaches
	about func(events.Subject) bool // whether records of a subject say something of the queue
	users int                       // guarded by all.mu
	idle  *time.Timer               // likewise: closes the board if nobody uses it for a while
	gone  chan struct{}             // closed when nothing is followed any more

	reading sync.Mutex // of who reads up to the end of the log

	mu        sync.Mutex // guards what follows
	work      *projector.Work
	at        events.Offset // folded up to here
	newest    time.Time     // the log's time: of the newest record that was seen,
	since     time.Time     // and when that was, by the clock that nobody sets
	from      time.Time     // when the board began: by the clock that dates records, or the log's time if that is later,
	begun     time.Time     // and by the clock that nobody sets
	entries   map[string]*cacheEntry
	ready     entryHeap
	timed     entryHeap
	flight    map[string]events.Offset // items that a worker of this process claims; once it is known, the offset from which on the log says what became of them
	bodies    map[string]Item          // small ones of what is to be done
	room      int                      // for those, in bytes
	ask       map[string]bool          // items that others come after and of which nothing is known
	waiting   []chan struct{}          // workers, first come first
	contest   int                      // how often others were faster, lately
	timer     *time.Timer
	stop      context.CancelFunc // of the follow; nil: none
	over      bool               // timers are not set any more
	followErr error              // why it ended
}

const (
	idleTimeout  = 30 * time.Second // a board that nobody uses is kept for a while
	maxBodyBytes = 16 << 20         // bytes of bodies that a board keeps
	maxBody      = 64 << 10
	maxChoice    = 64            // of free items a worker chooses one, if others are faster
	maxPassed    = 4 * maxChoice // times that an item is passed over by that
	maxFirst     = 8 * maxChoice // items that are free with which a board begins that only hands out
)

// boards are those of a store, which closes them.
type queueCaches struct {
	running sync.WaitGroup // queueCaches that follow the log

	mu     sync.Mutex // guards what follows
	closed bool
	of     map[events.Subject]*queueCache
}

func queueCachesOf(st *tally.Store) *queueCaches {
	return tally.Kept(st, func() *queueCaches { return &queueCaches{of: make(map[events.Subject]*queueCache)} })
}

// Close returns when no board follows the log and no timer of one is set.
func (all *queueCaches) Close() {
	all.mu.Lock()
	all.closed = true
	for _, qc := range all.of {
		qc.forget()
	}
	all.mu.Unlock()
	all.running.Wait()
}

// enter returns the board of a queue as of some time after the call began, with all that is to
// be done. leave is to be called when it is not used any more.
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

// enterFirst is enter for whoever asks for what is handed out next, or for what there is of the
// queue itself: of items that are free all but the first ones may be missing.
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
		return cmp.Or(cmp.Compare(x.due, y.due), x.item.ComparePlace(y.item)) < 0
	}
	return qc
}

// leave says that a caller does not use the board any more.
func (qc *queueCache) leave() {
	qc.all.mu.Lock()
	defer qc.all.mu.Unlock()
	if qc.users--; qc.users > 0 || qc.all.closed {
		return
	}
	if qc.idle == nil {
		qc.idle = time.AfterFunc(idleTimeout, qc.close)
		return
	}
	qc.idle.Reset(idleTimeout)
}

// close forgets the board if nobody uses it.
func (qc *queueCache) close() {
	qc.all.mu.Lock()
	defer qc.all.mu.Unlock()
	if qc.users == 0 {
		qc.forget()
	}
}

// forget takes the board from those of the store, and ends what runs for it. The caller holds
// all.mu.
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

// start has the board follow the log, from its first use on.
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

// catchUp folds what is durable by now.
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

// follow folds what comes.
func (qc *queueCache) follow(life context.Context, after events.Offset) {
	r := events.Range{Namespace: qc.queue.sub.Namespace, Kind: events.KindSession, After: after}
	err := qc.fold(life, qc.st.Log.Follow(life, r))
	if life.Err() != nil {
		err = nil // nobody waits for the board but after Close
	}
	qc.all.mu.Lock()
	qc.forget()
	qc.all.mu.Unlock()
	qc.mu.Lock()
	qc.followErr = cmp.Or(err, error(log.ErrUnavailable))
	qc.mu.Unlock()
	close(qc.gone)
}

// readable yields records, those of the queue with their data. What cannot be read says nothing.
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

// fold folds records as they come.
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

// take folds a record that follows the last one. It reports whether there is something to
// be asked.
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
		qc.ask[id] = true // one that is missing may be done now
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

// sort places all items anew: the order may be another one. The caller holds mu.
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

// saw notes the time of a record, and reports whether it is later than it was thought to
// be. The caller holds mu.
func (qc *queueCache) advanceTime(recorded time.Time) bool {
	if !qc.newest.IsZero() && !recorded.After(qc.nowLocked()) {
		return false
	}
	qc.newest, qc.since = recorded, time.Now()
	return true
}

func (qc *queueCache) nowLocked() time.Time { return qc.newest.Add(time.Since(qc.since)) }

// place puts an item where it belongs by now. The caller holds mu.
func (qc *queueCache) refile(i *projector.QueueItem) {
	s := qc.entries[i.ID]
	if s != nil {
		s.leave()
	}
	at, taken := qc.flight[i.ID]
	if taken && (at == 0 || at > qc.at) {
		return // the log says soon what becomes of it
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

// settle asks the log about items that others come after and that are not queued, as far
// as is known: they may be done. What is not will be seen when it is.
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

// arm sets the timer to when something is due next. The caller holds mu.
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

// waitFor is how long to wait for a time, at most a day: a lease may be said to be over in
// more years than a duration has.
func waitFor(at, now time.Time) time.Duration {
	return min(max(0, at.Sub(now)), 24*time.Hour) + time.Millisecond
}

// ring is when something is due.
func (qc *queueCache) onTimer() {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.expire()
	qc.arm()
	qc.wake()
}

// expire puts what is due by now where it belongs. The caller holds mu.
func (qc *queueCache) expire() {
	now := qc.nowLocked().UnixMilli()
	for s := qc.timed.first(); s != nil && s.due <= now; s = qc.timed.first() {
		qc.refile(s.item)
		if s.in == &qc.timed {
			return // not yet, by less than a millisecond
		}
	}
}

// look reads the session of an item anew.
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

// slot is an item that is ready, or will be at a time.
type cacheEntry struct {
	item  *projector.QueueItem
	due   int64      // Unix milliseconds, of one that is not ready yet
	in    *entryHeap // where it is
	index int        // there

	passed int // how often another one was chosen though this one was ready
}

// slotHeap has the least of its slots first.
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

// first returns the least slot, nil if there is none.
func (h *entryHeap) first() *cacheEntry {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// leave takes a slot from where it is.
func (s *cacheEntry) leave() {
	if s.in != nil {
		heap.Remove(s.in, s.index)
	}
}
