package tavern

import (
	"context"
	"errors"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

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
