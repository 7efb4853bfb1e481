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

// States of items. An item whose lease is over is ready; one that was handed out too often
// is ready until somebody notices, and then dead. One whose time is over is dead at once.
const (
	ItemReady   ItemState = "ready"   // it is handed out to the next worker
	ItemClaimed ItemState = "claimed" // a worker has it
	ItemWaiting ItemState = "waiting" // it is not due, or comes after others
	ItemDone    ItemState = "done"    // it was completed
	ItemDead    ItemState = "dead"    // it is not tried again
)

// ItemStatus is an item with what becomes of it.
type ItemStatus struct {
	Item
	State    ItemState
	Attempts int           // made, since it was queued or queued again, without those that were given back
	Worker   string        // who has it
	Fence    events.Offset // of the claim in effect, 0: none
	Until    time.Time     // when its lease is over, by the log's time
	Waits    []string      // of After, those that are not done
	Outcome  string        // of what ended it: completed, failed, stopped:dead, ...
	Error    string        // of the last attempt that failed, cut to 512 bytes
	History  []Attempt     // each attempt, oldest first: of Get, and of dead items in a list
}

// Try is an attempt at an item.
type Attempt struct {
	Number  int64
	Worker  string
	Fence   events.Offset
	At      time.Time     // when it was recorded
	Outcome string        // completed, failed, released, stopped:...; lost: its lease was over; "": under way
	Error   string        // why it failed
	Result  []byte        // JSON, of one that was completed
	Stale   []StaleReport // what was said when the item was another's by then
}

// Late is what a worker reported that had lost its item. It has no effect.
type StaleReport struct {
	At      events.Offset
	Outcome string
	Result  []byte // JSON; of a failure the cause as a string
}

// ListQuery selects items of a queue.
type ListQuery struct {
	States []ItemState // none: all but done
	Limit  int         // of the page; 0: no limit
	After  string      // what the page before gave as its end; "": the first page
}

// List lists items in the order in which they are handed out, the highest priority first,
// of equals (and all, if the queue is serial) by the log. With done among the states that
// is the order of the log alone, and a page reads that much of the queue. next is where the
// next page begins, "" if nothing is left. Everybody who lists a queue as of one offset
// gets the same list.
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

// fill reads what a list says of an item that is not in the state.
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

// listPlace is where an item is in a list.
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
		return p, &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a place in this list", text)}
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

// state says what may happen to an item next. The caller holds mu.
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

// status is what is known of an item here. The caller holds mu.
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

// listAll lists items in the order of the log, those that are done too.
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

// turns yields the items that were put into the queue behind an offset, as they were then.
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

// statusAt is the status of an item of which the turn was found: one that is not in the
// state is done.
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

// lifeAfter is the offset behind which the records are that say what becomes of an item.
func (q *Queue) lifeAfter(i projector.QueueItem, serial bool) events.Offset {
	if serial {
		return i.At
	}
	return 0
}

// isDone reports whether an item is done of which only the id is known.
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

// found is an item with what there was of its queue.
type found struct {
	item  projector.QueueItem
	queue projector.Queue
	qc    *queueCache
}

// has looks for an item on the board.
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

// find returns an item as it is now. One that is not there is tally.ErrNotFound.
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
	for turn, err := range q.turns(ctx, 0) { // it is done, or was never there
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

// Get returns an item with each attempt at it. One that is not there is tally.ErrNotFound.
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

// tries reads the attempts at an item.
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

// addTry adds what a record says of the attempts at an item, which was one thing before and
// is another after it.
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

// fenceIn is the claim that a record names.
func fenceIn(f projector.Fact) events.Offset {
	switch p := f.Payload.(type) {
	case *events.RunProgressed:
		return p.Fence
	case *events.RunFinished:
		return p.Fence
	}
	return 0
}

// errorIn is the error that the result of a dead item names.
func errorIn(result events.Raw) string {
	var r struct {
		Error string `json:"error"`
	}
	if rawjson.Unmarshal(result, &r) != nil {
		return ""
	}
	return r.Error
}

// ItemStateError says that an item is not in a state in which what was asked for can be
// done. Nothing was written.
type ItemStateError struct {
	Queue, Item string
	Have, Want  ItemState
}

func (e *ItemStateError) Error() string {
	return fmt.Sprintf("queue %q: item %q is %s, not %s", e.Queue, e.Item, e.Have, e.Want)
}

// Requeue has a dead item tried again, from the first attempt on. What happened to it stays.
// One that is not dead is *ItemStateError, one that is not there tally.ErrNotFound.
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

// Counts returns how many items of the queue are in each state, without those that are
// done: these are not kept in mind, and [Queue.List] finds them.
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

// hole returns a *projector.HoleError of lost records of the queue that the view lacks with which
// boards begin.
func (qc *queueCache) hole(ctx context.Context) error {
	return qc.st.Lacks(ctx, "work", qc.queue.sub.Namespace, qc.about)
}
