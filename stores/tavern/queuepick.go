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

// mayHand reports whether there is something to hand out. The caller holds mu.
func (qc *queueCache) mayHand() bool {
	if qc.ready.first() == nil {
		return qc.work.Upto != nil // there may be more
	}
	open := qc.work.Items[qc.work.Queue.Open]
	return !qc.work.Queue.Settings.Serial || len(qc.flight) == 0 && (open == nil || !open.IsHeld(qc.nowLocked()))
}

// wake lets the worker go on that waits longest, if there is something for it. It wakes
// the next one when it has taken that. The caller holds mu.
func (qc *queueCache) wake() {
	if len(qc.waiting) > 0 && qc.mayHand() {
		close(qc.waiting[0])
		qc.waiting = qc.waiting[1:]
	}
}

// picked is an item that a worker may claim, with what is known of it and its queue.
type picked struct {
	item  projector.QueueItem
	queue projector.Queue
	now   time.Time
	from  time.Time // when a claim begins: now, or later if the store was at rest
	body  *Item     // nil: not known
}

// pick takes an item for a worker, which is to say then what became of it (missed, took).
// If there is none, wait is closed when it is worth to look again.
func (qc *queueCache) pick(ctx context.Context, worker string) (p picked, wait chan struct{}, err error) {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.expire()
	for _, most := range []int{maxFirst, 0} { // all, if the first ones are gone already
		if !qc.isShort() {
			break
		}
		qc.mu.Unlock()
		err := qc.load(ctx, most)
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

// choose takes an item from those that are ready: the first one, or, while workers
// elsewhere are often faster, one of the first by chance, but always the same one for a
// worker. What somebody had before, or was passed over often, goes at once: chance alone may
// leave an item for as long as others are put in. The caller holds mu.
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

// isLate reports whether nobody is to pass over an item any more.
func (s *cacheEntry) isLate() bool { return s.item.Attempts > 0 || s.passed >= maxPassed }

// chance is a number for a worker and an item.
func chance(worker, item string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:%s%s", len(worker), worker, item)
	return h.Sum64()
}

// quit withdraws a worker that waits. If it was woken, the next one is.
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

// pass wakes another worker in the place of a worker that was woken and gave up.
func (qc *queueCache) pass() {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.wake()
}

// took says that an item's state is that of a record which the log has by now.
func (qc *queueCache) took(id string, at events.Offset) {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.contest = max(0, qc.contest-1)
	qc.landed(id, at)
}

// landed ends the flight of an item, at once or when the record at an offset is folded.
// The caller holds mu.
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

// missed says that an item could not be claimed: somebody was faster, with a record at an
// offset, or something went wrong, 0.
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
		err = qc.reread(ctx, i, base) // records that came before the item, perhaps
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.landed(id, 0)
	return err
}

// load has the board know all that is to be done, with most 0, or the first ones again of what
// is free, if it does not.
func (qc *queueCache) load(ctx context.Context, most int) error {
	if !qc.lacks(most) {
		return nil
	}
	qc.reading.Lock()
	defer qc.reading.Unlock()
	if !qc.lacks(most) {
		return nil // somebody else was faster
	}
	if err := qc.begin(ctx, most); err != nil {
		return err
	}
	return qc.settleAwaited(ctx)
}

// lacks reports whether something is missing of all, or of the first ones.
func (qc *queueCache) lacks(most int) bool {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	if most == 0 {
		return qc.work.Upto != nil
	}
	return qc.isShort()
}

// isShort reports whether what is handed out next may be missing. The caller holds mu.
func (qc *queueCache) isShort() bool {
	if qc.work.Upto == nil {
		return false
	}
	first := qc.ready.first()
	return first == nil || !qc.work.IsNext(first.item)
}

// begin has the board be what the log has of the queue by now. What there was at first is what the
// view says, if there is one: it has no more than what is to be done, and the log all that ever
// was. The caller holds reading.
func (qc *queueCache) begin(ctx context.Context, most int) error {
	work, at, err := qc.st.QueueView(ctx, qc.queue.id, most)
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
		head = qc.at // others have come further meanwhile
		qc.mu.Unlock()
	}
}

// foldOnto folds what the log has of a queue behind an offset onto its state.
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

// replace has the board know a queue as it is at an offset. The caller holds mu.
func (qc *queueCache) replace(work *projector.Work, at events.Offset) {
	qc.work, qc.at = work, at
	for id, s := range qc.entries {
		if s.item = work.Items[id]; s.item == nil {
			delete(qc.entries, id)
		}
	}
	for id, it := range qc.bodies { // it may be that of a second item of the id, which says nothing
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

// first returns the offset before the queue's first record: nothing is known of it before.
func (qc *queueCache) first(ctx context.Context, head events.Offset) (events.Offset, error) {
	for rec, err := range qc.st.Log.Read(ctx, events.Range{Subject: qc.queue.sub, Upto: max(head, 1), Limit: 1}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			return damage.Offset - 1, nil
		}
		return rec.Offset - min(rec.Offset, 1), err
	}
	return head, nil
}
