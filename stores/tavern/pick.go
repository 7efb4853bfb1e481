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
func (b *board) mayHand() bool {
	if b.ready.first() == nil {
		return b.work.Upto != nil // there may be more
	}
	open := b.work.Items[b.work.Queue.Open]
	return !b.work.Queue.Settings.Serial || len(b.flight) == 0 && (open == nil || !open.IsHeld(b.nowLocked()))
}

// wake lets the worker go on that waits longest, if there is something for it. It wakes
// the next one when it has taken that. The caller holds mu.
func (b *board) wake() {
	if len(b.waiting) > 0 && b.mayHand() {
		close(b.waiting[0])
		b.waiting = b.waiting[1:]
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
func (b *board) pick(ctx context.Context, worker string) (p picked, wait chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	for _, most := range []int{mostFirst, 0} { // all, if the first ones are gone already
		if !b.isShort() {
			break
		}
		b.mu.Unlock()
		err := b.load(ctx, most)
		b.mu.Lock()
		if err != nil {
			return p, nil, err
		}
	}
	if !b.mayHand() {
		wait = make(chan struct{})
		b.waiting = append(b.waiting, wait)
		return p, wait, nil
	}
	s := b.choose(worker)
	i := s.item
	b.flight[i.ID] = 0
	p = picked{item: *i, queue: b.work.Queue, now: b.nowLocked()}
	if p.from = b.from.Add(time.Since(b.begun)); p.from.Before(p.now) {
		p.from = p.now
	}
	if it, ok := b.bodies[i.ID]; ok {
		p.body = &it
	}
	b.wake()
	return p, nil, nil
}

// choose takes an item from those that are ready: the first one, or, while workers
// elsewhere are often faster, one of the first by chance, but always the same one for a
// worker. What somebody had before, or was passed over often, goes at once: chance alone may
// leave an item for as long as others are put in. The caller holds mu.
func (b *board) choose(worker string) *slot {
	best := heap.Pop(&b.ready).(*slot)
	if b.contest == 0 || b.work.Queue.Settings.Serial {
		return best
	}
	list := []*slot{best}
	for len(list) < min(1+b.contest, mostChoice) {
		s := b.ready.first()
		if s == nil || s.item.Priority != best.item.Priority || !b.work.IsNext(s.item) {
			break
		}
		list = append(list, heap.Pop(&b.ready).(*slot))
	}
	if n := slices.IndexFunc(list, (*slot).isLate); n >= 0 {
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
			heap.Push(&b.ready, s)
		}
	}
	return best
}

// isLate reports whether nobody is to pass over an item any more.
func (s *slot) isLate() bool { return s.item.Attempts > 0 || s.passed >= mostPassed }

// chance is a number for a worker and an item.
func chance(worker, item string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:%s%s", len(worker), worker, item)
	return h.Sum64()
}

// quit withdraws a worker that waits. If it was woken, the next one is.
func (b *board) quit(wait chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, w := range b.waiting {
		if w == wait {
			b.waiting = append(b.waiting[:n], b.waiting[n+1:]...)
			return
		}
	}
	b.wake()
}

// pass wakes another worker in the place of a worker that was woken and gave up.
func (b *board) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake()
}

// took says that an item's state is that of a record which the log has by now.
func (b *board) took(id string, at events.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.contest = max(0, b.contest-1)
	b.landed(id, at)
}

// landed ends the flight of an item, at once or when the record at an offset is folded.
// The caller holds mu.
func (b *board) landed(id string, at events.Offset) {
	if _, ok := b.flight[id]; !ok {
		return
	}
	if b.flight[id] = max(at, 1); at <= b.at {
		if i := b.work.Items[id]; i != nil {
			b.place(i)
		} else {
			delete(b.flight, id)
		}
	}
	b.wake()
}

// missed says that an item could not be claimed: somebody was faster, with a record at an
// offset, or something went wrong, 0.
func (b *board) missed(ctx context.Context, id string, at events.Offset) error {
	b.mu.Lock()
	if at > b.at {
		b.contest = min(b.contest+1, mostChoice)
		b.landed(id, at)
		b.mu.Unlock()
		return nil
	}
	var base projector.QueueItem
	i := b.work.Items[id]
	if i != nil {
		base = *i
	}
	serial := b.work.Queue.Settings.Serial
	b.mu.Unlock()
	var err error
	if i != nil && at != 0 && !serial {
		err = b.look(ctx, i, base) // records that came before the item, perhaps
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.landed(id, 0)
	return err
}

// load has the board know all that is to be done, with most 0, or the first ones again of what
// is free, if it does not.
func (b *board) load(ctx context.Context, most int) error {
	if !b.lacks(most) {
		return nil
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	if !b.lacks(most) {
		return nil // somebody else was faster
	}
	if err := b.begin(ctx, most); err != nil {
		return err
	}
	return b.settle(ctx)
}

// lacks reports whether something is missing of all, or of the first ones.
func (b *board) lacks(most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if most == 0 {
		return b.work.Upto != nil
	}
	return b.isShort()
}

// isShort reports whether what is handed out next may be missing. The caller holds mu.
func (b *board) isShort() bool {
	if b.work.Upto == nil {
		return false
	}
	first := b.ready.first()
	return first == nil || !b.work.IsNext(first.item)
}

// begin has the board be what the log has of the queue by now. What there was at first is what the
// view says, if there is one: it has no more than what is to be done, and the log all that ever
// was. The caller holds reading.
func (b *board) begin(ctx context.Context, most int) error {
	work, at, err := b.st.QueueView(ctx, b.queue.id, most)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	head, durable := b.st.Log.Durable(ctx)
	if durable != nil {
		return durable
	}
	if err != nil || work.Queue.Last == 0 {
		work = projector.NewWork(b.queue.sub.Namespace, b.queue.id, true)
		first, err := b.first(ctx, head)
		if err != nil {
			return err
		}
		at = max(at, first)
	}
	for {
		if err := b.foldOnto(ctx, work, at, head); err != nil {
			return err
		}
		b.mu.Lock()
		if at = max(at, head); at >= b.at {
			b.replace(work, at)
			b.mu.Unlock()
			return nil
		}
		head = b.at // others have come further meanwhile
		b.mu.Unlock()
	}
}

// foldOnto folds what the log has of a queue behind an offset onto its state.
func (b *board) foldOnto(ctx context.Context, work *projector.Work, after, upto events.Offset) error {
	if after >= upto {
		return nil
	}
	r := events.Range{Namespace: b.queue.sub.Namespace, Kind: events.KindSession, After: after, Upto: upto}
	for rec, err := range b.readable(ctx, b.st.Log.Read(ctx, r)) {
		if err != nil {
			return err
		}
		if b.about(rec.Subject) {
			work.Apply(projector.Decode(rec))
		}
	}
	return nil
}

// replace has the board know a queue as it is at an offset. The caller holds mu.
func (b *board) replace(work *projector.Work, at events.Offset) {
	b.work, b.at = work, at
	for id, s := range b.slots {
		if s.item = work.Items[id]; s.item == nil {
			delete(b.slots, id)
		}
	}
	for id, it := range b.bodies { // it may be that of a second item of the id, which says nothing
		if i := work.Items[id]; i == nil || i.At != it.Offset || i.Index != it.index {
			b.dropBody(id)
		}
	}
	b.sort()
	for id, landed := range b.flight {
		if landed != 0 && landed <= at {
			delete(b.flight, id)
		}
	}
	b.wake()
}

// first returns the offset before the queue's first record: nothing is known of it before.
func (b *board) first(ctx context.Context, head events.Offset) (events.Offset, error) {
	for rec, err := range b.st.Log.Read(ctx, events.Range{Subject: b.queue.sub, Upto: max(head, 1), Limit: 1}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			return damage.Offset - 1, nil
		}
		return rec.Offset - min(rec.Offset, 1), err
	}
	return head, nil
}
