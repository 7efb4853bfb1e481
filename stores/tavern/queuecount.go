package tavern

import "context"

// Counts returns how many items of the queue are in each state, without those that are
// done: these are not kept in mind, and [Queue.List] finds them.
func (q *Queue) Counts(ctx context.Context) (map[ItemState]int, error) {
	b, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer b.leave()
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	hole := b.hole(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	counts := make(map[ItemState]int)
	for _, i := range b.work.Items {
		counts[b.state(i)]++
	}
	delete(counts, ItemDone)
	return counts, hole
}

// hole returns a *projector.HoleError of lost records of the queue that the view lacks with which
// boards begin.
func (b *board) hole(ctx context.Context) error {
	return b.st.Lacks(ctx, "work", b.queue.sub.Namespace, b.about)
}
