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
type board struct {
	st    *tally.Store
	queue *Queue
	all   *boards
	about func(events.Subject) bool // whether records of a subject say something of the queue
	users int                       // guarded by all.mu
	idle  *time.Timer               // likewise: closes the board if nobody uses it for a while
	gone  chan struct{}             // closed when nothing is followed any more

	reading sync.Mutex // of who reads up to the end of the log

	mu       sync.Mutex // guards what follows
	work     *projector.Work
	at       events.Offset // folded up to here
	newest   time.Time     // the log's time: of the newest record that was seen,
	since    time.Time     // and when that was, by the clock that nobody sets
	from     time.Time     // when the board began: by the clock that dates records, or the log's time if that is later,
	begun    time.Time     // and by the clock that nobody sets
	slots    map[string]*slot
	ready    slotHeap
	timed    slotHeap
	flight   map[string]events.Offset // items that a worker of this process claims; once it is known, the offset from which on the log says what became of them
	bodies   map[string]Item          // small ones of what is to be done
	room     int                      // for those, in bytes
	ask      map[string]bool          // items that others come after and of which nothing is known
	waiting  []chan struct{}          // workers, first come first
	contest  int                      // how often others were faster, lately
	timer    *time.Timer
	stop     context.CancelFunc // of the follow; nil: none
	over     bool               // timers are not set any more
	followed error              // why it ended
}

const (
	lingering  = 30 * time.Second // a board that nobody uses is kept for a while
	mostBodies = 16 << 20         // bytes of bodies that a board keeps
	smallBody  = 64 << 10
	mostChoice = 64             // of free items a worker chooses one, if others are faster
	mostPassed = 4 * mostChoice // times that an item is passed over by that
	mostFirst  = 8 * mostChoice // items that are free with which a board begins that only hands out
)

// boards are those of a store, which closes them.
type boards struct {
	running sync.WaitGroup // boards that follow the log

	mu     sync.Mutex // guards what follows
	closed bool
	of     map[events.Subject]*board
}

func boardsOf(st *tally.Store) *boards {
	return tally.Kept(st, func() *boards { return &boards{of: make(map[events.Subject]*board)} })
}

// Close returns when no board follows the log and no timer of one is set.
func (all *boards) Close() {
	all.mu.Lock()
	all.closed = true
	for _, b := range all.of {
		b.forget()
	}
	all.mu.Unlock()
	all.running.Wait()
}

// enter returns the board of a queue as of some time after the call began, with all that is to
// be done. leave is to be called when it is not used any more.
func (q *Queue) enter(ctx context.Context) (*board, error) {
	b, err := q.enterFirst(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.load(ctx, 0); err != nil {
		b.leave()
		return nil, err
	}
	return b, nil
}

// enterFirst is enter for whoever asks for what is handed out next, or for what there is of the
// queue itself: of items that are free all but the first ones may be missing.
func (q *Queue) enterFirst(ctx context.Context) (*board, error) {
	if err := q.sub.Validate(); err != nil {
		return nil, err
	}
	all := boardsOf(q.st)
	all.mu.Lock()
	b := all.of[q.sub]
	if b == nil {
		b = newBoard(q, all)
		all.of[q.sub] = b
	}
	b.users++
	all.mu.Unlock()
	if err := b.start(ctx); err != nil {
		b.leave()
		return nil, err
	}
	return b, nil
}

func newBoard(q *Queue, all *boards) *board {
	b := &board{st: q.st, queue: q, all: all, gone: make(chan struct{}), slots: make(map[string]*slot), flight: make(map[string]events.Offset), ask: make(map[string]bool),
		bodies: make(map[string]Item), room: mostBodies, work: projector.NewWork(q.sub.Namespace, q.id, true)}
	b.about = b.work.Concerns
	b.ready.less = func(x, y *slot) bool { return b.work.Queue.CompareTurn(x.item, y.item) < 0 }
	b.timed.less = func(x, y *slot) bool {
		return cmp.Or(cmp.Compare(x.due, y.due), x.item.ComparePlace(y.item)) < 0
	}
	return b
}

// leave says that a caller does not use the board any more.
func (b *board) leave() {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	if b.users--; b.users > 0 || b.all.closed {
		return
	}
	if b.idle == nil {
		b.idle = time.AfterFunc(lingering, b.close)
		return
	}
	b.idle.Reset(lingering)
}

// close forgets the board if nobody uses it.
func (b *board) close() {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	if b.users == 0 {
		b.forget()
	}
}

// forget takes the board from those of the store, and ends what runs for it. The caller holds
// all.mu.
func (b *board) forget() {
	if b.all.of[b.queue.sub] == b {
		delete(b.all.of, b.queue.sub)
	}
	if b.idle != nil {
		b.idle.Stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.stop != nil {
		b.stop()
	}
	if b.timer != nil {
		b.timer.Stop()
	}
}

// start has the board follow the log, from its first use on.
func (b *board) start(ctx context.Context) error {
	b.mu.Lock()
	started := b.stop != nil
	b.mu.Unlock()
	if started {
		return nil
	}
	if err := b.catchUp(ctx); err != nil {
		return err
	}
	from, err := b.st.LeaseTime(ctx)
	if err != nil {
		return err
	}
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all.closed {
		return fmt.Errorf("queue %q: %w: the store is closed", b.queue.id, log.ErrUnavailable)
	}
	if b.stop == nil {
		b.from, b.begun = from, time.Now()
		var life context.Context
		life, b.stop = context.WithCancel(log.NoteDamage(context.WithoutCancel(ctx), nil)) // until forget
		after := b.at
		b.all.running.Go(func() { b.follow(life, after) })
	}
	return nil
}

// catchUp folds what is durable by now.
func (b *board) catchUp(ctx context.Context) error {
	b.reading.Lock()
	defer b.reading.Unlock()
	head, err := b.st.Log.Durable(ctx)
	if err != nil {
		return err
	}
	now, err := b.st.LogTime(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	after := b.at
	b.saw(now)
	b.mu.Unlock()
	if after == 0 {
		err := b.begin(ctx, mostFirst)
		if err != nil {
			return err
		}
		return b.settle(ctx)
	}
	if after < head {
		r := events.Range{Namespace: b.queue.sub.Namespace, Kind: events.KindSession, After: after, Upto: head}
		if err := b.fold(ctx, b.st.Log.Read(ctx, r)); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.at = max(b.at, head)
	b.mu.Unlock()
	return b.settle(ctx)
}

// follow folds what comes.
func (b *board) follow(life context.Context, after events.Offset) {
	r := events.Range{Namespace: b.queue.sub.Namespace, Kind: events.KindSession, After: after}
	err := b.fold(life, b.st.Log.Follow(life, r))
	if life.Err() != nil {
		err = nil // nobody waits for the board but after Close
	}
	b.all.mu.Lock()
	b.forget()
	b.all.mu.Unlock()
	b.mu.Lock()
	b.followed = cmp.Or(err, error(log.ErrUnavailable))
	b.mu.Unlock()
	close(b.gone)
}

// readable yields records, those of the queue with their data. What cannot be read says nothing.
func (b *board) readable(ctx context.Context, records iter.Seq2[events.Record, error]) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range records {
			if err == nil && b.about(rec.Subject) {
				rec, err = projector.Resolve(ctx, b.st.Log, rec, b.st.MaxValue())
			}
			if _, damaged := errors.AsType[*events.DamageError](err); !damaged && !yield(rec, err) {
				return
			}
		}
	}
}

// fold folds records as they come.
func (b *board) fold(ctx context.Context, records iter.Seq2[events.Record, error]) error {
	for rec, err := range b.readable(ctx, records) {
		if err != nil {
			return err
		}
		if b.take(rec) {
			if err := b.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// take folds a record that follows the last one. It reports whether there is something to
// be asked.
func (b *board) take(rec events.Record) (ask bool) {
	var f projector.Fact
	concerns := b.about(rec.Subject)
	if concerns {
		f = projector.Decode(rec)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saw(rec.Recorded) {
		b.expire()
		b.arm()
		b.wake()
	}
	if rec.Offset <= b.at {
		return false
	}
	b.at = rec.Offset
	if !concerns {
		return false
	}
	for _, i := range b.work.Apply(f) {
		if i.At == rec.Offset {
			b.keepBody(f, i)
		}
		b.place(i)
	}
	if _, id, ok := projector.ItemOf(rec.Subject.ID); ok && b.work.Items[id] == nil && b.work.IsAwaited(id) {
		b.ask[id] = true // one that is missing may be done now
	}
	if rec.Type == events.TypeSessionCreated || rec.Type == events.TypeSessionUpdated {
		b.sort()
	}
	for id, at := range b.flight {
		if i := b.work.Items[id]; at != 0 && at <= b.at && i != nil {
			b.place(i)
		}
	}
	b.wake()
	return len(b.ask) > 0
}

// sort places all items anew: the order may be another one. The caller holds mu.
func (b *board) sort() {
	b.ready.list, b.timed.list = nil, nil
	for _, s := range b.slots {
		s.in = nil
	}
	for _, i := range b.work.Items {
		b.place(i)
	}
}

// keepBody keeps the body of a new item, if it is small.
func (b *board) keepBody(f projector.Fact, i *projector.QueueItem) {
	if n := len(f.Data); n <= smallBody && n <= b.room {
		b.bodies[i.ID] = itemIn(f, *i)
		b.room -= len(b.bodies[i.ID].Body)
	}
}

func (b *board) dropBody(id string) {
	if it, ok := b.bodies[id]; ok {
		b.room += len(it.Body)
		delete(b.bodies, id)
	}
}

// saw notes the time of a record, and reports whether it is later than it was thought to
// be. The caller holds mu.
func (b *board) saw(recorded time.Time) bool {
	if !b.newest.IsZero() && !recorded.After(b.nowLocked()) {
		return false
	}
	b.newest, b.since = recorded, time.Now()
	return true
}

func (b *board) nowLocked() time.Time { return b.newest.Add(time.Since(b.since)) }

// place puts an item where it belongs by now. The caller holds mu.
func (b *board) place(i *projector.QueueItem) {
	s := b.slots[i.ID]
	if s != nil {
		s.leave()
	}
	at, taken := b.flight[i.ID]
	if taken && (at == 0 || at > b.at) {
		return // the log says soon what becomes of it
	}
	delete(b.flight, i.ID)
	if b.work.Items[i.ID] != i || i.Ended != 0 {
		delete(b.slots, i.ID)
		b.dropBody(i.ID)
		return
	}
	if s == nil {
		s = &slot{item: i}
		b.slots[i.ID] = s
	}
	if waits := b.work.Waits(i); i.Fence == 0 && len(waits) > 0 {
		for _, id := range b.work.Unsettled(i) {
			b.ask[id] = true
		}
		return
	}
	due := i.Due()
	if due.IsZero() || !due.After(b.nowLocked()) {
		heap.Push(&b.ready, s)
		return
	}
	s.due = due.UnixMilli()
	heap.Push(&b.timed, s)
	b.arm()
}

// settle asks the log about items that others come after and that are not queued, as far
// as is known: they may be done. What is not will be seen when it is.
func (b *board) settle(ctx context.Context) error {
	b.mu.Lock()
	ask := b.ask
	b.ask = make(map[string]bool)
	serial := b.work.Queue.Settings.Serial
	b.mu.Unlock()
	for id := range ask {
		done, err := b.queue.isDone(ctx, id, serial)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		b.mu.Lock()
		for _, i := range b.work.Settle(id) {
			b.place(i)
		}
		b.wake()
		b.mu.Unlock()
	}
	return nil
}

// arm sets the timer to when something is due next. The caller holds mu.
func (b *board) arm() {
	first := b.timed.first()
	if first == nil || b.over {
		return
	}
	wait := waitFor(time.UnixMilli(first.due), b.nowLocked())
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, b.ring)
		return
	}
	b.timer.Reset(wait)
}

// waitFor is how long to wait for a time, at most a day: a lease may be said to be over in
// more years than a duration has.
func waitFor(at, now time.Time) time.Duration {
	return min(max(0, at.Sub(now)), 24*time.Hour) + time.Millisecond
}

// ring is when something is due.
func (b *board) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	b.arm()
	b.wake()
}

// expire puts what is due by now where it belongs. The caller holds mu.
func (b *board) expire() {
	now := b.nowLocked().UnixMilli()
	for s := b.timed.first(); s != nil && s.due <= now; s = b.timed.first() {
		b.place(s.item)
		if s.in == &b.timed {
			return // not yet, by less than a millisecond
		}
	}
}

// look reads the session of an item anew.
func (b *board) look(ctx context.Context, i *projector.QueueItem, fresh projector.QueueItem) error {
	fresh.Attempts, fresh.Series, fresh.Last, fresh.Ended, fresh.Outcome, fresh.Error = 0, 0, 0, 0, "", ""
	fresh.Fence, fresh.Worker, fresh.Until = 0, "", 0
	for rec, err := range b.st.Log.Read(ctx, events.Range{Subject: b.queue.itemSubject(i.ID)}) {
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.work.Items[i.ID] == i && fresh.Last > i.Last {
		after := i.After
		*i = fresh
		i.After = after
	}
	return nil
}

// slot is an item that is ready, or will be at a time.
type slot struct {
	item  *projector.QueueItem
	due   int64     // Unix milliseconds, of one that is not ready yet
	in    *slotHeap // where it is
	index int       // there

	passed int // how often another one was chosen though this one was ready
}

// slotHeap has the least of its slots first.
type slotHeap struct {
	list []*slot
	less func(a, b *slot) bool
}

func (h *slotHeap) Len() int           { return len(h.list) }
func (h *slotHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

func (h *slotHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

func (h *slotHeap) Push(x any) {
	s := x.(*slot)
	s.in, s.index = h, len(h.list)
	h.list = append(h.list, s)
}

func (h *slotHeap) Pop() any {
	last := len(h.list) - 1
	s := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	s.in = nil
	return s
}

// first returns the least slot, nil if there is none.
func (h *slotHeap) first() *slot {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// leave takes a slot from where it is.
func (s *slot) leave() {
	if s.in != nil {
		heap.Remove(s.in, s.index)
	}
}
