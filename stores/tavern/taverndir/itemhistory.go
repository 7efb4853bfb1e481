package taverndir

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// States of an item in its file. An item that no worker has claimed has no state there.
const (
	stateReady   = "ready"
	stateClaimed = "claimed"
	stateDone    = "done"
	stateDead    = "dead"
)

// itemHistory is the history part of an item's file. State and attempts follow from the steps; they are for readers
// and for git.
type itemHistory struct {
	State    string `json:"state,omitempty"`
	Attempts int    `json:"attempts,omitempty"` // since the item was queued or requeued
	Steps    []step `json:"history,omitempty"`
}

// step is a claim on an item with its end, or a change without a worker: the item was requeued, or it ended while no
// worker held it.
type step struct {
	Attempt  int              `json:"attempt,omitempty"` // of a claim, from 1
	Worker   string           `json:"worker,omitempty"`
	Until    events.Timestamp `json:"until,omitempty"`    // end of the lease, while the claim is in effect
	Returned string           `json:"returned,omitempty"` // failed, released, lost or requeued: the item is free again
	Outcome  string           `json:"outcome,omitempty"`  // completed, failed, stopped:...: the item has ended
	Error    string           `json:"error,omitempty"`
	Result   events.Raw       `json:"result,omitempty"` // up to maxResult bytes
}

// returnedLost ends a claim whose lease had ended when another worker claimed the item.
const returnedLost = "lost"

// maxResult bounds the results that a file repeats. The log has all of them.
const maxResult = 64 << 10

// isOpen reports whether a claim is in effect.
func (s step) isOpen() bool { return s.Attempt > 0 && s.Returned == "" && s.Outcome == "" }

// isSame reports whether two steps are the same one. One of them may not have ended yet.
func (s step) isSame(o step) bool {
	if s.isOpen() || o.isOpen() {
		return s.Attempt == o.Attempt && s.Worker == o.Worker
	}
	return s.Attempt == o.Attempt && s.Worker == o.Worker && s.Returned == o.Returned && s.Outcome == o.Outcome && s.Error == o.Error && string(s.Result) == string(o.Result)
}

// started returns the event that begins a claim.
func (s step) started(run events.RunRef) events.Payload {
	p := &events.RunStarted{Run: run, Worker: s.Worker, Attempt: int64(s.Attempt)}
	if until, ok := s.Until.Time(); ok {
		p.LeaseUntil = until.UnixMilli()
	}
	return p
}

// ended returns the event that ends a claim, or that of a step without a worker. It returns nil for a claim in effect.
func (s step) ended(run events.RunRef, fence events.Offset) events.Payload {
	switch {
	case s.Outcome != "":
		return &events.RunFinished{Run: run, Outcome: s.Outcome, Result: orNull(s.Result), Fence: fence}
	case s.Returned != "":
		return &events.RunProgressed{Run: run, Kind: s.Returned, Note: s.Error, LeaseUntil: new(int64), Fence: fence}
	}
	return nil
}

func orNull(raw events.Raw) events.Raw {
	if len(raw) == 0 {
		return events.Raw("null")
	}
	return raw
}

// itemHistories folds the histories of items of a queue.
type itemHistories struct {
	work   *projector.Work
	steps  map[string][]step
	last   map[string]events.Offset // the newest record about each item
	newest events.Offset            // of all items
}

func newHistories(namespace string, q projector.Queue, items ...*projector.QueueItem) *itemHistories {
	return &itemHistories{work: projector.RestoreWork(namespace, q, items, false), steps: make(map[string][]step), last: make(map[string]events.Offset)}
}

// of returns the history of an item.
func (l *itemHistories) of(id string) itemHistory {
	i, steps := l.work.Items[id], l.steps[id]
	if i == nil || len(steps) == 0 {
		return itemHistory{}
	}
	h := itemHistory{stateReady, i.Attempts, steps}
	switch {
	case i.IsDone():
		h.State = stateDone
	case i.IsDead():
		h.State = stateDead
	case i.Fence != 0:
		h.State = stateClaimed
	}
	return h
}

// apply folds the next record about an item.
func (l *itemHistories) apply(id string, f projector.Fact) {
	l.last[id], l.newest = f.Offset, max(l.newest, f.Offset)
	i, open := l.work.Items[id], l.work.Items[l.work.Queue.Open]
	if i == nil || f.Offset <= i.At {
		return
	}
	before, had := *i, projector.QueueItem{}
	if open != nil {
		had = *open
	}
	l.work.Apply(f)
	if open != nil && open != i && had.Fence != 0 && open.Fence == 0 { // in a serial queue a claim ends the one before it
		l.end(open.ID, step{Returned: returnedLost, Error: open.Error})
	}
	l.note(before, *i, f)
}

// note appends the change by a record to an item's steps.
func (l *itemHistories) note(before, after projector.QueueItem, f projector.Fact) {
	id := after.ID
	switch p := f.Payload.(type) {
	case *events.RunStarted:
		if after.Fence != f.Offset {
			return
		}
		if before.Fence != 0 {
			l.end(id, step{Returned: returnedLost, Error: after.Error})
		}
		l.steps[id] = append(l.steps[id], step{Attempt: after.Attempts, Worker: p.Worker, Until: leaseOf(after)})
	case *events.RunProgressed:
		switch {
		case after.Series > before.Series:
			l.steps[id] = append(l.steps[id], step{Returned: p.Kind})
		case before.Fence != 0 && after.Fence == 0:
			l.end(id, step{Returned: p.Kind, Error: p.Note})
		case after.Until != before.Until:
			l.steps[id][len(l.steps[id])-1].Until = leaseOf(after)
		}
	case *events.RunFinished:
		end := step{Outcome: p.Outcome, Result: resultOf(p)}
		switch {
		case after.Ended == before.Ended:
		case before.Fence != 0:
			l.end(id, end)
		default:
			l.steps[id] = append(l.steps[id], end)
		}
	}
}

// farthest stands for the end of a lease that no timestamp can express.
const farthest = events.Timestamp("9999-12-31T23:59:59.999Z")

func leaseOf(i projector.QueueItem) events.Timestamp {
	return cmp.Or(events.TimestampOf(time.UnixMilli(i.Until)), farthest)
}

func resultOf(p *events.RunFinished) events.Raw {
	if raw := events.Raw(rawjson.Trim(p.Result)); len(raw) <= maxResult && string(raw) != "null" {
		return raw
	}
	return nil
}

// end ends the newest claim on an item.
func (l *itemHistories) end(id string, s step) {
	last := &l.steps[id][len(l.steps[id])-1]
	s.Attempt, s.Worker = last.Attempt, last.Worker
	*last = s
}

// refold returns the history that the steps of a file have, as a store would write it.
func refold(steps []step) itemHistory {
	const id = "item"
	item := &projector.QueueItem{ID: id, Run: events.RunRef{Kind: events.KindItem, ID: id}}
	l := newHistories("", projector.Queue{ID: id}, item)
	sub, at := events.Session("", projector.ItemSession(id, id)), events.Offset(0)
	add := func(p events.Payload) {
		if p != nil && p.Validate() == nil {
			at++
			l.apply(id, projector.Fact{Record: events.Record{Event: events.Event{Subject: sub}, Offset: at}, Payload: p})
		}
	}
	for _, s := range steps {
		if s.Attempt > 0 {
			add(s.started(item.Run))
		}
		add(s.ended(item.Run, item.Fence))
	}
	return l.of(id)
}

// itemOf returns the item that a turn of a queue holds, and false if it is not an item.
func itemOf(queue string, t projector.Turn) (*projector.QueueItem, bool) {
	e := events.Entry{Thread: events.MainThread, Turn: t.Raw, Bytes: t.Bytes, Run: t.Run, Meta: t.Meta}
	list := projector.ItemsIn(projector.Fact{Record: events.Record{Event: events.Event{Subject: events.Session("", projector.QueueSession(queue))}, Offset: t.Offset},
		Payload: &events.TurnAppended{Entries: []events.Entry{e}}})
	if len(list) == 0 {
		return nil, false
	}
	return list[0], true
}

// itemsOf returns the items of a queue's turns. It has nil for a turn that is not an item, or whose id an earlier turn
// has.
func itemsOf(queue string, turns []projector.Turn) []*projector.QueueItem {
	list, seen := make([]*projector.QueueItem, len(turns)), make(map[string]bool)
	for n, t := range turns {
		if i, ok := itemOf(queue, t); ok && !seen[i.ID] {
			list[n], seen[i.ID] = i, true
		}
	}
	return list
}

// historiesOf reads the histories of items of a queue, up to an offset.
func historiesOf(ctx context.Context, src layouts.Source, queue string, l *projector.Ledger, upto events.Offset, items []*projector.QueueItem) (*itemHistories, error) {
	items = slices.DeleteFunc(slices.Clone(items), func(i *projector.QueueItem) bool { return i == nil })
	raw, _ := l.Fields.Get("settings")
	q := projector.Queue{ID: queue, Settings: projector.QueueSettingsOf(raw)}
	all := newHistories(src.Namespace(), q, items...)
	if len(items) == 0 {
		return all, nil
	}
	if q.Settings.Serial {
		r := events.Range{Subject: events.Session(src.Namespace(), projector.QueueSession(queue)), After: items[0].At, Upto: upto}
		return all, all.read(ctx, src, r, "")
	}
	for _, i := range items {
		r := events.Range{Subject: events.Session(src.Namespace(), projector.ItemSession(queue, i.ID)), Upto: upto}
		if err := all.read(ctx, src, r, i.ID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// read folds the records of a range: those of an item's session, or, with id "", those of a serial queue about its
// runs.
func (l *itemHistories) read(ctx context.Context, src layouts.Source, r events.Range, id string) error {
	for rec, err := range src.Loader().Source.Read(ctx, r) {
		if err == nil && rec.Type == events.TypeRunFinished {
			rec, err = src.Loader().Whole(ctx, rec)
		}
		if err != nil {
			return err
		}
		if f := projector.Decode(rec); id != "" {
			l.apply(id, f)
		} else if ref := projector.RunOf(f.Payload); ref != nil {
			l.apply(ref.ID, f)
		}
	}
	return nil
}
