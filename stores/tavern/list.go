package tavern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// ItemState says what may happen to an item next.
type ItemState string

// States of items. An item whose lease has ended is ready. An item whose attempts are used up stays ready until a
// worker or daemon notices, and is dead then. An item that has expired is dead at once.
const (
	ItemReady   ItemState = "ready"   // the next worker gets it
	ItemClaimed ItemState = "claimed" // a worker has it
	ItemWaiting ItemState = "waiting" // it is not due, or comes after others
	ItemDone    ItemState = "done"    // a worker completed it
	ItemDead    ItemState = "dead"    // it is not tried again
)

// ItemStatus is an item with its present state.
type ItemStatus struct {
	Item
	State    ItemState
	Attempts int           // since the item was queued or requeued, without released claims
	Worker   string        // the worker that holds the item
	Fence    events.Offset // fence of the claim in effect; 0: no claim
	Until    time.Time     // end of the lease, by the log's time
	Waits    []string      // ids of After that are not done yet
	Outcome  string        // how the item ended: completed, failed, stopped:dead, ...
	Error    string        // of the last failed attempt, cut to 512 bytes
	History  []Attempt     // all attempts, oldest first; set by Get, and in lists for dead items
}

// Attempt is one attempt at an item.
type Attempt struct {
	Number  int64
	Worker  string
	Fence   events.Offset
	At      time.Time     // when the claim was recorded
	Outcome string        // completed, failed, released, stopped:...; lost: its lease ended; "": in progress
	Error   string        // why the attempt failed
	Result  []byte        // JSON, if the attempt completed the item
	Stale   []StaleReport // reports that came after another worker had claimed the item
}

// StaleReport is a report by a worker that had lost its item. It has no effect.
type StaleReport struct {
	At      events.Offset
	Outcome string
	Result  []byte // JSON; for a failure the cause, as a string
}

// ListQuery selects items of a queue.
type ListQuery struct {
	States []ItemState // empty: all but done
	Limit  int         // of the page; 0: no limit
	After  string      // the end of the previous page, as List returned it; "": the first page
}

// List returns items in the order in which workers get them: highest priority first, then the order of the log. A
// serial queue ignores priorities. If States contains ItemDone, the order is that of the log alone, and a page reads
// that part of the queue. next is the position of the next page, or "" at the end. At one offset all callers get the
// same list.
func (q *Queue) List(ctx context.Context, query ListQuery) (list []ItemStatus, next string, err error) {
	qc, err := q.enter(ctx)
	if err != nil {
		return nil, "", err
	}
	defer qc.leave()
	if err := qc.catchUp(ctx); err != nil {
		return nil, "", err
	}
	states := query.States
	if len(states) == 0 {
		states = []ItemState{ItemReady, ItemClaimed, ItemWaiting, ItemDead}
	}
	if slices.Contains(states, ItemDone) {
		list, next, err = q.listAll(ctx, qc, states, query)
	} else {
		list, next, err = qc.listOpen(states, query)
	}
	for n := range list {
		if err == nil {
			err = q.fill(ctx, &list[n])
		}
	}
	return list, next, cmp.Or(err, qc.hole(ctx))
}

// fill reads the parts of a status that the cache does not have.
func (q *Queue) fill(ctx context.Context, s *ItemStatus) error {
	if s.Body == nil {
		it, err := q.readItem(ctx, projector.QueueItem{ID: s.ID, At: s.Offset, Index: s.index})
		if err != nil {
			return err
		}
		s.Body, s.After = it.Body, it.After
	}
	if s.State != ItemDead {
		return nil
	}
	history, err := q.history(ctx, s)
	s.History = history
	return err
}

// listPosition is the position of an item in a list.
type listPosition struct {
	first  int // 9 less the priority; 0 in the order of the log
	offset events.Offset
	index  int
}

func (p listPosition) String() string {
	return fmt.Sprintf("%d.%d.%d", p.first, uint64(p.offset), p.index)
}

func parseListPosition(text string) (p listPosition, err error) {
	if text == "" {
		return listPosition{index: -1}, nil
	}
	parts, numbers := strings.Split(text, "."), [3]uint64{}
	for n, part := range parts {
		if n > 2 || err != nil {
			break
		}
		numbers[n], err = strconv.ParseUint(part, 10, 53)
	}
	if err != nil || len(parts) != 3 {
		return p, &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a page token of this list", text)}
	}
	return listPosition{int(numbers[0]), events.Offset(numbers[1]), int(numbers[2])}, nil
}

func (p listPosition) before(o listPosition) bool {
	switch {
	case p.first != o.first:
		return p.first < o.first
	case p.offset != o.offset:
		return p.offset < o.offset
	}
	return p.index < o.index
}

// listOpen lists items that are not done.
func (qc *queueCache) listOpen(states []ItemState, query ListQuery) (list []ItemStatus, next string, err error) {
	after, err := parseListPosition(query.After)
	if err != nil {
		return nil, "", err
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.expire()
	items := slices.SortedFunc(maps.Values(qc.work.Items), qc.work.Queue.CompareTurn)
	for _, i := range items {
		at := qc.listPositionOf(i)
		if !after.before(at) || !slices.Contains(states, qc.state(i)) {
			continue
		}
		if query.Limit > 0 && len(list) == query.Limit {
			return list, next, nil
		}
		list = append(list, qc.status(i))
		next = at.String()
	}
	return list, "", nil
}

func (qc *queueCache) listPositionOf(i *projector.QueueItem) listPosition {
	if qc.work.Queue.Settings.Serial {
		return listPosition{0, i.At, i.Index}
	}
	return listPosition{9 - i.Priority, i.At, i.Index}
}

// state returns the item's state. The caller holds mu.
func (qc *queueCache) state(i *projector.QueueItem) ItemState {
	now := qc.nowLocked()
	switch {
	case i.IsDone():
		return ItemDone
	case i.IsDead() || i.IsExpired(now):
		return ItemDead
	case i.IsHeld(now):
		return ItemClaimed
	case i.Fence == 0 && (len(qc.work.Waits(i)) > 0 || i.Due().After(now)):
		return ItemWaiting
	}
	return ItemReady
}

// status returns the item's status, from the cache alone. The caller holds mu.
func (qc *queueCache) status(i *projector.QueueItem) ItemStatus {
	s := statusOf(*i)
	s.State = qc.state(i)
	if s.State == ItemWaiting {
		s.Waits = qc.work.Waits(i)
	}
	if s.State != ItemClaimed {
		s.Worker, s.Fence, s.Until = "", 0, time.Time{}
	}
	if it, ok := qc.bodies[i.ID]; ok {
		s.Item = it
	}
	s.index = i.Index
	return s
}

func statusOf(i projector.QueueItem) ItemStatus {
	s := ItemStatus{Item: Item{ID: i.ID, Owner: i.Owner, After: i.After, Priority: i.Priority, Offset: i.At, kind: i.Run.Kind, index: i.Index},
		Attempts: i.Attempts, Worker: i.Worker, Fence: i.Fence, Outcome: i.Outcome, Error: i.Error}
	s.DueAt, _ = i.DueAt.Time()
	s.ExpiresAt, _ = i.ExpiresAt.Time()
	if i.Until != 0 {
		s.Until = time.UnixMilli(i.Until)
	}
	if i.IsDone() {
		s.State = ItemDone
	}
	return s
}

// listAll lists items in the order of the log, including items that are done.
func (q *Queue) listAll(ctx context.Context, qc *queueCache, states []ItemState, query ListQuery) (list []ItemStatus, next string, err error) {
	after, err := parseListPosition(query.After)
	if err != nil {
		return nil, "", err
	}
	var lost []events.Offset
	for turn, err := range q.turns(ctx, after.offset-min(after.offset, 1)) {
		if damage, is := errors.AsType[*events.DamageError](err); is {
			lost = append(lost, damage.Offset)
			continue
		}
		if err != nil {
			return nil, "", err
		}
		at := listPosition{0, turn.At, turn.Index}
		if !after.before(at) {
			continue
		}
		s, err := q.statusAt(ctx, qc, turn)
		if damage, is := errors.AsType[*events.DamageError](err); is {
			lost = append(lost, damage.Offset)
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if !slices.Contains(states, s.State) {
			continue
		}
		if query.Limit > 0 && len(list) == query.Limit {
			return list, next, projector.HoleOf(q.sub, lost)
		}
		list, next = append(list, s), at.String()
	}
	return list, "", projector.HoleOf(q.sub, lost)
}

// turns yields the queue's items after an offset, as they were when they were queued.
func (q *Queue) turns(ctx context.Context, after events.Offset) func(func(*projector.QueueItem, error) bool) {
	return func(yield func(*projector.QueueItem, error) bool) {
		seen := make(map[string]bool)
		for rec, err := range q.st.Log.Read(ctx, events.Range{Subject: q.sub, After: after}) {
			if err == nil {
				rec, err = projector.Resolve(ctx, q.st.Log, rec, q.st.MaxValue())
			}
			if err != nil {
				if _, damaged := errors.AsType[*events.DamageError](err); !yield(nil, err) || !damaged {
					return
				}
				continue
			}
			for _, i := range projector.ItemsIn(projector.Decode(rec)) {
				if seen[i.ID] {
					continue
				}
				seen[i.ID] = true
				if !yield(i, nil) {
					return
				}
			}
		}
	}
}

// statusAt returns the status of the item that a turn queued. An item that the cache does not have is done.
func (q *Queue) statusAt(ctx context.Context, qc *queueCache, turn *projector.QueueItem) (ItemStatus, error) {
	qc.mu.Lock()
	i := qc.work.Items[turn.ID]
	serial := qc.work.Queue.Settings.Serial
	if i != nil {
		defer qc.mu.Unlock()
		return qc.status(i), nil
	}
	qc.mu.Unlock()
	for rec, err := range q.st.Log.Read(ctx, events.Range{Subject: q.lifeOf(turn.ID, serial), After: q.lifeAfter(*turn, serial)}) {
		if err != nil {
			return ItemStatus{}, err
		}
		if turn.Apply(projector.Decode(rec)); turn.IsDone() {
			break
		}
	}
	return statusOf(*turn), nil
}

// lifeAfter returns the offset after which records about an item begin.
func (q *Queue) lifeAfter(i projector.QueueItem, serial bool) events.Offset {
	if serial {
		return i.At
	}
	return 0
}

// isDone reports whether the item with an id is done.
func (q *Queue) isDone(ctx context.Context, id string, serial bool) (bool, error) {
	i := projector.QueueItem{ID: id, Run: events.RunRef{ID: id}}
	for rec, err := range q.st.Log.Read(ctx, events.Range{Subject: q.lifeOf(id, serial)}) {
		if err != nil {
			return false, err
		}
		if i.Apply(projector.Decode(rec)); i.IsDone() {
			return true, nil
		}
	}
	return false, nil
}

// found is an item with its queue.
type found struct {
	item  projector.QueueItem
	queue projector.Queue
	qc    *queueCache
}

// has looks for an item in the cache.
func (f *found) has(id string) bool {
	f.qc.mu.Lock()
	defer f.qc.mu.Unlock()
	f.queue = f.qc.work.Queue
	i := f.qc.work.Items[id]
	if i != nil {
		f.item = *i
	}
	return i != nil
}

// find returns an item as it is now. If the queue has no such item, the error is tally.ErrNotFound.
func (q *Queue) find(ctx context.Context, id string) (found, error) {
	qc, err := q.enterFirst(ctx)
	if err != nil {
		return found{}, err
	}
	defer qc.leave()
	if err := qc.catchUp(ctx); err != nil {
		return found{}, err
	}
	f := found{qc: qc}
	if f.has(id) {
		return f, nil
	}
	if err := qc.load(ctx, 0); err != nil {
		return found{}, err
	}
	if f.has(id) {
		return f, nil
	}
	for turn, err := range q.turns(ctx, 0) { // the item is done, or never existed
		if err != nil {
			return f, err
		}
		if turn.ID == id {
			f.item = *turn
			return f, nil
		}
	}
	return f, fmt.Errorf("queue %q, item %q: %w", q.id, id, tally.ErrNotFound)
}

// Get returns an item with all attempts at it. If the queue has no such item, the error is tally.ErrNotFound.
func (q *Queue) Get(ctx context.Context, id string) (ItemStatus, error) {
	f, err := q.find(ctx, id)
	if err != nil {
		return ItemStatus{}, err
	}
	s, err := q.statusAt(ctx, f.qc, &f.item)
	if err != nil {
		return s, err
	}
	s.Item, err = q.readItem(ctx, f.item)
	if err == nil {
		s.History, err = q.history(ctx, &s)
	}
	return s, err
}

// history reads the attempts at an item.
func (q *Queue) history(ctx context.Context, s *ItemStatus) (list []Attempt, err error) {
	qc, err := q.enterFirst(ctx)
	if err != nil {
		return nil, err
	}
	qc.mu.Lock()
	serial := qc.work.Queue.Settings.Serial
	qc.mu.Unlock()
	qc.leave()
	i := projector.QueueItem{ID: s.ID, Run: events.RunRef{Kind: s.kind, ID: s.ID}, At: s.Offset}
	for rec, err := range q.st.Log.Read(ctx, events.Range{Subject: q.lifeOf(s.ID, serial), After: q.lifeAfter(i, serial)}) {
		if err != nil {
			return nil, err
		}
		f := projector.Decode(rec)
		if ref := projector.RunOf(f.Payload); ref == nil || *ref != i.Run {
			continue
		}
		before := i
		i.Apply(f)
		list = addAttempt(list, f, before, i)
	}
	if s.State != ItemClaimed && len(list) > 0 && list[len(list)-1].Outcome == "" {
		list[len(list)-1].Outcome = "lost"
	}
	return list, nil
}

// addAttempt adds a record to the attempts at an item. before and after are the item's states around the record.
func addAttempt(list []Attempt, f projector.Fact, before, after projector.QueueItem) []Attempt {
	last := -1
	for n := range list {
		if list[n].Fence == fenceIn(f) {
			last = n
		}
	}
	switch p := f.Payload.(type) {
	case *events.RunStarted:
		if after.Fence != f.Offset {
			return list
		}
		if before.Fence != 0 {
			list[len(list)-1].Outcome = "lost"
		}
		return append(list, Attempt{Number: p.Attempt, Worker: p.Worker, Fence: f.Offset, At: f.Recorded})
	case *events.RunProgressed:
		switch {
		case last < 0 || p.LeaseUntil == nil || *p.LeaseUntil != 0:
		case after.Fence == before.Fence:
			cause, _ := rawjson.Marshal(p.Note)
			list[last].Stale = append(list[last].Stale, StaleReport{f.Offset, p.Kind, cause})
		default:
			list[last].Outcome, list[last].Error = p.Kind, p.Note
		}
	case *events.RunFinished:
		switch {
		case last < 0:
		case after.Ended != f.Offset:
			list[last].Stale = append(list[last].Stale, StaleReport{f.Offset, p.Outcome, p.Result})
		default:
			list[last].Outcome, list[last].Error = p.Outcome, errorIn(p.Result)
			if after.IsDone() {
				list[last].Result = p.Result
			}
		}
	}
	return list
}

// fenceIn returns the fence that a record names.
func fenceIn(f projector.Fact) events.Offset {
	switch p := f.Payload.(type) {
	case *events.RunProgressed:
		return p.Fence
	case *events.RunFinished:
		return p.Fence
	}
	return 0
}

// errorIn returns the error in the result of a dead item.
func errorIn(result events.Raw) string {
	var r struct {
		Error string `json:"error"`
	}
	if rawjson.Unmarshal(result, &r) != nil {
		return ""
	}
	return r.Error
}

// ItemStateError reports that an item is not in the state that a call requires. Nothing was written.
type ItemStateError struct {
	Queue, Item string
	Have, Want  ItemState
}

func (e *ItemStateError) Error() string {
	return fmt.Sprintf("queue %q: item %q is %s, not %s", e.Queue, e.Item, e.Have, e.Want)
}

// Requeue queues a dead item again, with all its attempts left. Its history stays. If the item is not dead, the error
// is *ItemStateError; if the queue has no such item, it is tally.ErrNotFound.
func (q *Queue) Requeue(ctx context.Context, id string) error {
	for try := 1; ; try++ {
		f, err := q.find(ctx, id)
		if err != nil {
			return err
		}
		if !f.item.IsDead() {
			s, err := q.statusAt(ctx, f.qc, &f.item)
			return cmp.Or(err, f.qc.hole(ctx), error(&ItemStateError{q.id, id, s.State, ItemDead}))
		}
		p := picked{item: f.item, queue: f.queue}
		e, err := events.New(queueSource, q.lifeOf(id, f.queue.Settings.Serial), &events.RunProgressed{Run: f.item.Run, Kind: projector.ItemRequeued, LeaseUntil: new(int64)})
		if err != nil {
			return err
		}
		e.ID = events.DerivedID(projector.ItemRequeued, f.item.Run.String(), f.item.Ended.String())
		_, err = q.st.Append(ctx, e.Subject, p.expect(), e)
		if !errors.Is(err, log.ErrConflict) || try == maxQueueTries {
			return err
		}
	}
}

// Counts returns the number of items in each state but done. [Queue.List] finds items that are done.
func (q *Queue) Counts(ctx context.Context) (map[ItemState]int, error) {
	qc, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer qc.leave()
	if err := qc.catchUp(ctx); err != nil {
		return nil, err
	}
	hole := qc.hole(ctx)
	qc.mu.Lock()
	defer qc.mu.Unlock()
	qc.expire()
	counts := make(map[ItemState]int)
	for _, i := range qc.work.Items {
		counts[qc.state(i)]++
	}
	delete(counts, ItemDone)
	return counts, hole
}

// hole returns a *projector.HoleError if the catalog's view, with which caches begin, misses lost records of the queue.
func (qc *queueCache) hole(ctx context.Context) error {
	return qc.st.Lacks(ctx, "work", qc.queue.sub.Namespace, qc.about)
}
