package projector

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// Work is the state of a queue: a fold of the records of its session and of its items' sessions, in log order.
type Work struct {
	Queue Queue
	Items map[string]*QueueItem // by id

	// Brief drops items that are done, so memory is bounded by the open items. A dropped id is unknown afterwards: see
	// Unsettled.
	Brief bool

	// If Upto is not nil, some free items are missing: items in the order after Upto that were queued up to the offset
	// Known.
	Upto  *QueueItem
	Known events.Offset

	namespace, session, items string
	after                     map[string][]string // item -> items that wait for it
}

// NewWork returns the state of a queue before its first record.
func NewWork(namespace, queue string, brief bool) *Work {
	return &Work{Queue: Queue{ID: queue}, Items: make(map[string]*QueueItem), Brief: brief,
		namespace: namespace, session: QueueSession(queue), items: ItemSession(queue, ""), after: make(map[string][]string)}
}

// RestoreWork returns the state of a queue from its stored form and items.
func RestoreWork(namespace string, q Queue, items []*QueueItem, brief bool) *Work {
	w := NewWork(namespace, q.ID, brief)
	w.Queue = q
	for _, i := range items {
		w.Items[i.ID] = i
		for _, id := range i.After {
			w.after[id] = append(w.after[id], i.ID)
		}
	}
	return w
}

// Concerns reports whether records of a subject can change the queue or its items.
func (w *Work) Concerns(sub events.Subject) bool {
	return sub.IsSession() && sub.Namespace == w.namespace && (sub.ID == w.session || strings.HasPrefix(sub.ID, w.items))
}

// Apply folds the next record that concerns the queue. It returns the affected items: new, changed, done, or no longer
// waiting for another item.
func (w *Work) Apply(f Fact) (touched []*QueueItem) {
	if f.Subject.ID == w.session {
		w.Queue.apply(f)
		touched = w.add(f)
		if w.Queue.Settings.Serial {
			touched = append(touched, w.serial(f)...)
		}
		return touched
	}
	i := w.Items[strings.TrimPrefix(f.Subject.ID, w.items)]
	if i == nil || f.Offset <= i.Last {
		return nil
	}
	i.Last = f.Offset
	if w.Queue.Settings.Serial {
		return nil
	}
	return w.change(i, f)
}

// add adds the items of a record.
func (w *Work) add(f Fact) (touched []*QueueItem) {
	list, rejected := itemsOf(f)
	w.Queue.Rejected += rejected
	for _, i := range list {
		if w.Items[i.ID] != nil {
			w.Queue.Rejected++
			continue
		}
		w.Items[i.ID] = i
		for _, id := range i.After {
			w.after[id] = append(w.after[id], i.ID)
		}
		touched = append(touched, i)
	}
	return touched
}

// serial folds a record of a run in a serial queue. A claim ends the claim before it.
func (w *Work) serial(f Fact) (touched []*QueueItem) {
	ref := RunOf(f.Payload)
	if ref == nil || w.Items[ref.ID] == nil {
		return nil
	}
	i, open := w.Items[ref.ID], w.Items[w.Queue.Open]
	touched = w.change(i, f)
	if i.Fence == f.Offset && open != nil && open != i {
		open.lost()
		open.free()
		touched = append(touched, open)
	}
	switch {
	case i.Fence != 0:
		w.Queue.Open = i.ID
	case open == i:
		w.Queue.Open = ""
	}
	return touched
}

// change folds a record onto an item. It returns the item and the items that wait for it, if their state changes.
func (w *Work) change(i *QueueItem, f Fact) []*QueueItem {
	before := *i
	i.Apply(f)
	touched := []*QueueItem{i}
	if i.Ended != before.Ended {
		for _, id := range w.after[i.ID] {
			if other := w.Items[id]; other != nil {
				touched = append(touched, other)
			}
		}
	}
	if i.IsDone() {
		w.Settle(i.ID)
	}
	return touched
}

// Settle notes that an item is done, so that no item waits for it any more.
func (w *Work) Settle(id string) (touched []*QueueItem) {
	if !w.Brief {
		return nil // Waits checks the item itself
	}
	for _, waiting := range w.after[id] {
		if i := w.Items[waiting]; i != nil {
			i.After = slices.DeleteFunc(slices.Clone(i.After), func(a string) bool { return a == id })
			touched = append(touched, i)
		}
	}
	delete(w.after, id)
	if i := w.Items[id]; i != nil && i.IsDone() {
		delete(w.Items, id)
	}
	return touched
}

// IsAwaited reports whether an item waits for the item with this id.
func (w *Work) IsAwaited(id string) bool { return len(w.after[id]) > 0 }

// IsNext reports whether an item can be handed out next, given that it is the first of the present and ready items. No
// missing item may precede it or share its id. If the queue has become serial, its order differs from the order that
// Upto refers to, so IsNext returns false.
func (w *Work) IsNext(i *QueueItem) bool {
	return w.Upto == nil || i.At <= w.Known && !w.Queue.Settings.Serial && w.Queue.CompareTurn(i, w.Upto) <= 0
}

// Waits lists the unfinished items that an item waits for.
func (w *Work) Waits(i *QueueItem) (list []string) {
	for _, id := range i.After {
		other := w.Items[id]
		passed := other != nil && (other.IsDone() || other.IsDead() && w.Queue.Settings.Dead == PassDead)
		if !passed {
			list = append(list, id)
		}
	}
	return list
}

// Unsettled lists the ids that an item waits for and that are not present: not queued yet, or done and dropped. If an
// id is done, the caller must call Settle for it.
func (w *Work) Unsettled(i *QueueItem) (list []string) {
	for _, id := range i.After {
		if w.Items[id] == nil {
			list = append(list, id)
		}
	}
	return list
}
