package tavern

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// The log stores appends to one subject one after the other. If maxSeparate appends to a queue are in progress, further
// items of the process wait and go in together, as the turns of one event. They cost one round trip and one record, and
// each caller returns when its item is durable. An item with an id of the caller's is always an event of its own, so
// that a repeated call stores it once.
const (
	maxSeparate   = 4 // appends in progress, from which on callers join
	maxJoined     = 64
	maxJoinedSize = 32 << 10 // bytes of the items that go in together
)

// joins are the queues of a store to which items are being appended.
type joins struct {
	running sync.WaitGroup // appends, counted under mu

	mu     sync.Mutex // guards the fields below
	closed bool
	of     map[joinKey]*join
}

// joinKey has the log too, because the log determines whether an append waits for trees.
type joinKey struct {
	by  *tally.Log
	sub events.Subject
}

func joinsOf(st *tally.Store) *joins {
	return tally.Kept(st, func() *joins { return &joins{of: make(map[joinKey]*join)} })
}

// Close returns when no append is in progress.
func (all *joins) Close() {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	all.running.Wait()
}

// join is the appends in progress to one queue. The mu of joins guards it.
type join struct {
	separate int // appends in progress
	waiting  []*joiner
}

// joiner is a caller whose item waits for other appends.
type joiner struct {
	ctx   context.Context // for the duration of the call
	entry events.Entry
	done  chan struct{} // closed when at and err are set
	at    events.Offset
	err   error
}

func (j *joiner) size() int { return len(j.entry.Turn) + len(j.entry.Bytes) + len(j.entry.Meta) }

// put appends an item's entry, alone or with others, and returns the record's offset.
func (q *Queue) put(ctx context.Context, entry events.Entry) (events.Offset, error) {
	all, key := joinsOf(q.st), joinKey{q.st.Log, q.sub}
	j := &joiner{ctx: ctx, entry: entry, done: make(chan struct{})}
	all.mu.Lock()
	if all.closed {
		all.mu.Unlock()
		return q.putEntries(ctx, entry) // the log refuses it
	}
	under := all.of[key]
	if under == nil {
		under = &join{}
		all.of[key] = under
	}
	if under.separate < maxSeparate || j.size() > maxJoinedSize {
		under.separate++
		all.running.Add(1)
		all.mu.Unlock()
		defer q.putWaiting(all, key)
		return q.putEntries(ctx, entry)
	}
	under.waiting = append(under.waiting, j)
	all.mu.Unlock()
	select {
	case <-j.done:
		return j.at, j.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: queue %q: %v", log.ErrUnknown, q.id, ctx.Err()) // the other caller still appends the item
	}
}

// putWaiting ends an append and starts the next one for the callers that waited.
func (q *Queue) putWaiting(all *joins, key joinKey) {
	all.mu.Lock()
	defer all.mu.Unlock()
	under := all.of[key]
	list := under.take()
	if len(list) > 0 {
		go func() { // the caller has its answer; running counts this append instead of the caller's
			q.putTogether(list)
			q.putWaiting(all, key)
		}()
		return
	}
	all.running.Done()
	if under.separate--; under.separate == 0 {
		delete(all.of, key)
	}
}

// take removes the next joiners from the waiting ones. The caller holds the mu of joins.
func (u *join) take() (list []*joiner) {
	n, size := 0, 0
	for n < min(len(u.waiting), maxJoined) && size+u.waiting[n].size() <= maxJoinedSize {
		size += u.waiting[n].size()
		n++
	}
	list, u.waiting = u.waiting[:n:n], u.waiting[n:]
	return list
}

// putTogether appends the items of several callers as one event. If the log refuses it, putTogether appends each item
// alone, because the refusal may concern only one of them.
func (q *Queue) putTogether(list []*joiner) {
	entries := make([]events.Entry, len(list))
	for i, j := range list {
		entries[i] = j.entry
	}
	at, err := q.putEntries(context.WithoutCancel(list[0].ctx), entries...)
	for _, j := range list {
		j.at, j.err = at, err
		if !events.IsStored(err) && !errors.Is(err, log.ErrUnknown) {
			j.at, j.err = q.putEntries(j.ctx, j.entry)
		}
		close(j.done)
	}
}

// putEntries appends one event.
func (q *Queue) putEntries(ctx context.Context, entries ...events.Entry) (events.Offset, error) {
	e, err := q.entriesEvent(entries...)
	if err != nil {
		return 0, err
	}
	e.ID = entries[0].ID
	ack, err := q.st.Append(ctx, q.sub, log.Any, e)
	return ack.First, err
}

func (q *Queue) entriesEvent(entries ...events.Entry) (events.Event, error) {
	return events.New(queueSource, q.sub, &events.TurnAppended{Entries: entries})
}
