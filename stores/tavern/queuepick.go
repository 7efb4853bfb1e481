package tavern

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// mayHand reports whether the cache can hand out an item. The caller holds mu.
func (qc *queueCache) mayHand() bool {
	if qc.ready.first() == nil {
		return qc.work.Upto != nil // the log may have more
	}
	open := qc.work.Items[qc.work.Queue.Open]
	return !qc.work.Queue.Settings.Serial || len(qc.flight) == 0 && (open == nil || !open.IsHeld(qc.nowLocked()))
}

// wake wakes the worker that has waited longest, if it can get an item. That worker wakes the next one. The caller
// holds mu.
func (qc *queueCache) wake() {
	if len(qc.waiting) > 0 && qc.mayHand() {
		close(qc.waiting[0])
		qc.waiting = qc.waiting[1:]
	}
}

// picked is an item that a worker may claim, with its state and its queue's.
type picked struct {
	item  projector.QueueItem
	queue projector.Queue
	now   time.Time
	from  time.Time // when a claim begins: now, or later if the store was idle
	body  *Item     // nil: not in the cache
}

// pick takes an item for a worker. The worker then calls took or missed. If the cache has no item, wait is closed as
// soon as another attempt makes sense.
func (qc *queueCache) pick(ctx context.Context, worker string) (p picked, wait chan struct{}, err error) {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.expire()
	for _, limit := range []int{maxFirst, 0} { // all items, if the first ones are gone already
		if !qc.isShort() {
			break
		}
		qc.mu.Unlock()
		err := qc.load(ctx, limit)
		qc.mu.Lock()
		if err != nil {
			return p, nil, err
		}
	}
	if !qc.mayHand() {
		wait = make(chan struct{})
		qc.waiting = append(qc.waiting, wait)
		return p, wait, nil
	}
	s := qc.choose(worker)
	i := s.item
	qc.flight[i.ID] = 0
	p = picked{item: *i, queue: qc.work.Queue, now: qc.nowLocked()}
	if p.from = qc.from.Add(time.Since(qc.begun)); p.from.Before(p.now) {
		p.from = p.now
	}
	if it, ok := qc.bodies[i.ID]; ok {
		p.body = &it
	}
	qc.wake()
	return p, nil, nil
}

// choose takes a ready item. Normally that is the first one. If workers of other processes are often faster, it is one
// of the first, by a hash of worker and item. An item that was tried before or passed over often goes first, so that it
// does not starve. The caller holds mu.
func (qc *queueCache) choose(worker string) *cacheEntry {
	best := heap.Pop(&qc.ready).(*cacheEntry)
	if qc.contest == 0 || qc.work.Queue.Settings.Serial {
		return best
	}
	list := []*cacheEntry{best}
	for len(list) < min(1+qc.contest, maxChoice) {
		s := qc.ready.first()
		if s == nil || s.item.Priority != best.item.Priority || !qc.work.IsNext(s.item) {
			break
		}
		list = append(list, heap.Pop(&qc.ready).(*cacheEntry))
	}
	if n := slices.IndexFunc(list, (*cacheEntry).isLate); n >= 0 {
		best = list[n]
	} else {
		for _, s := range list {
			if chance(worker, s.item.ID) < chance(worker, best.item.ID) {
				best = s
			}
		}
	}
	for _, s := range list {
		if s != best {
			s.passed++
			heap.Push(&qc.ready, s)
		}
	}
	return best
}

// isLate reports whether no worker may pass over the item any more.
func (s *cacheEntry) isLate() bool { return s.item.Attempts > 0 || s.passed >= maxPassed }

// chance returns a pseudo-random number for a worker and an item.
func chance(worker, item string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:%s%s", len(worker), worker, item)
	return h.Sum64()
}

// quit withdraws a waiting worker. If the worker was woken already, quit wakes the next one.
func (qc *queueCache) quit(wait chan struct{}) {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	for n, w := range qc.waiting {
		if w == wait {
			qc.waiting = append(qc.waiting[:n], qc.waiting[n+1:]...)
			return
		}
	}
	qc.wake()
}

// pass wakes another worker in place of a worker that was woken and gave up.
func (qc *queueCache) pass() {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.wake()
}

// took notes that a claim, or the end of an item, is in the log at an offset.
func (qc *queueCache) took(id string, at events.Offset) {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.contest = max(0, qc.contest-1)
	qc.landed(id, at)
}

// landed ends the flight of an item: now, or when the cache folds the record at the offset. The caller holds mu.
func (qc *queueCache) landed(id string, at events.Offset) {
	if _, ok := qc.flight[id]; !ok {
		return
	}
	if qc.flight[id] = max(at, 1); at <= qc.at {
		if i := qc.work.Items[id]; i != nil {
			qc.refile(i)
		} else {
			delete(qc.flight, id)
		}
	}
	qc.wake()
}

// missed notes that an item could not be claimed. at is the record by which another worker was faster, or 0 after any
// other error.
func (qc *queueCache) missed(ctx context.Context, id string, at events.Offset) error {
	qc.mu.Lock()
	if at > qc.at {
		qc.contest = min(qc.contest+1, maxChoice)
		qc.landed(id, at)
		qc.mu.Unlock()
		return nil
	}
	var base projector.QueueItem
	i := qc.work.Items[id]
	if i != nil {
		base = *i
	}
	serial := qc.work.Queue.Settings.Serial
	qc.mu.Unlock()
	var err error
	if i != nil && at != 0 && !serial {
		err = qc.reread(ctx, i, base) // perhaps the session has records from before the item
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.landed(id, 0)
	return err
}

// load reads all open items if limit is 0, or else the first free ones. It does nothing if the cache has them.
func (qc *queueCache) load(ctx context.Context, limit int) error {
	if !qc.lacks(limit) {
		return nil
	}
	qc.reading.Lock()
	defer qc.reading.Unlock()
	if !qc.lacks(limit) {
		return nil // another caller loaded them meanwhile
	}
	if err := qc.begin(ctx, limit); err != nil {
		return err
	}
	return qc.settleAwaited(ctx)
}

// lacks reports whether the cache misses some of all items, or, if limit is not 0, of the first ones.
func (qc *queueCache) lacks(limit int) bool {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	if limit == 0 {
		return qc.work.Upto != nil
	}
	return qc.isShort()
}

// isShort reports whether the next item may be missing from the cache. The caller holds mu.
func (qc *queueCache) isShort() bool {
	if qc.work.Upto == nil {
		return false
	}
	first := qc.ready.first()
	return first == nil || !qc.work.IsNext(first.item)
}

// begin loads the queue's present state. It starts from the catalog's view of open items if there is one, and else
// reads the queue's whole log. The caller holds reading.
func (qc *queueCache) begin(ctx context.Context, limit int) error {
	work, at, err := qc.st.QueueView(ctx, qc.queue.id, limit)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	head, durable := qc.st.Log.Durable(ctx)
	if durable != nil {
		return durable
	}
	if err != nil || work.Queue.Last == 0 {
		work = projector.NewWork(qc.queue.sub.Namespace, qc.queue.id, true)
		first, err := qc.first(ctx, head)
		if err != nil {
			return err
		}
		at = max(at, first)
	}
	for {
		if err := qc.foldOnto(ctx, work, at, head); err != nil {
			return err
		}
		qc.mu.Lock()
		if at = max(at, head); at >= qc.at {
			qc.replace(work, at)
			qc.mu.Unlock()
			return nil
		}
		head = qc.at // other callers read further meanwhile
		qc.mu.Unlock()
	}
}

// foldOnto folds the queue's records after an offset onto a state.
func (qc *queueCache) foldOnto(ctx context.Context, work *projector.Work, after, upto events.Offset) error {
	if after >= upto {
		return nil
	}
	r := events.Range{Namespace: qc.queue.sub.Namespace, Kind: events.KindSession, After: after, Upto: upto}
	for rec, err := range qc.readable(ctx, qc.st.Log.Read(ctx, r)) {
		if err != nil {
			return err
		}
		if qc.about(rec.Subject) {
			work.Apply(projector.Decode(rec))
		}
	}
	return nil
}

// replace replaces the state by another one, as of an offset. The caller holds mu.
func (qc *queueCache) replace(work *projector.Work, at events.Offset) {
	qc.work, qc.at = work, at
	for id, s := range qc.entries {
		if s.item = work.Items[id]; s.item == nil {
			delete(qc.entries, id)
		}
	}
	for id, it := range qc.bodies { // a body may belong to a second item with the same id, which the queue ignores
		if i := work.Items[id]; i == nil || i.At != it.Offset || i.Index != it.index {
			qc.dropBody(id)
		}
	}
	qc.sort()
	for id, landed := range qc.flight {
		if landed != 0 && landed <= at {
			delete(qc.flight, id)
		}
	}
	qc.wake()
}

// first returns the offset before the queue's first record.
func (qc *queueCache) first(ctx context.Context, head events.Offset) (events.Offset, error) {
	for rec, err := range qc.st.Log.Read(ctx, events.Range{Subject: qc.queue.sub, Upto: max(head, 1), Limit: 1}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			return damage.Offset - 1, nil
		}
		return rec.Offset - min(rec.Offset, 1), err
	}
	return head, nil
}
