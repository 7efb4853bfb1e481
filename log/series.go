package log

import (
	"context"
	"fmt"
	"time"

	"github.com/tallylog/tally/events"
)

// AppendSeries stores events of one subject in their order: the first one as expect says, each other one only directly
// behind the one before it, so that no other writer's event comes in between. It returns when all of them are as
// durable as an Append. In contrast to Append it is not all or nothing: a crash or an error may leave the first events
// in the log. It waits for the disk once, and writes each event once; a large Append is written twice.
//
// Appending the same series again completes it. added is how many events this call stored, also beside an error. The
// Ack is of all of them, with Duplicate set if all were there before.
//
// Events are stamped and limited as by Append. Errors are those of Append, with one difference: only ErrTooLarge and an
// *events.InvalidError of the events themselves mean that nothing was written. A *ConflictError behind the first event
// reports that another writer wrote to the subject meanwhile, or that the log has the events in another order.
func (l *Log) AppendSeries(ctx context.Context, sub events.Subject, expect Expect, evs ...events.Event) (ack Ack, added int, err error) {
	begun := time.Now()
	defer func() { l.config.Observer.Appended(added, time.Since(begun), err) }()
	list, err := l.prepareSeries(sub, expect, evs)
	if err != nil {
		return Ack{}, 0, err
	}
	if list[0].size*len(list) >= large {
		l.bulk.Add(1)
		defer l.bulk.Add(-1)
	}
	t, err := l.enter(sub)
	if err != nil {
		return Ack{}, 0, err
	}
	if err := l.await(ctx, t); err != nil {
		return Ack{}, 0, err
	}
	ack, added, err = l.putSeries(ctx, list)
	l.leave(t, false)
	if err != nil {
		return Ack{}, added, err
	}
	ack, err = l.settle(ctx, sub.Name(), false, ack, list[0].era)
	return ack, added, err
}

// large is the size of a series, in bytes, from which on views yield to it.
const large = 64 << 10

// Bulk reports whether this Log is appending a large series, some 64 KiB or more.
func (l *Log) Bulk() bool { return l.bulk.Load() > 0 }

// prepareSeries checks all events before any is stored, and encodes each one by itself.
func (l *Log) prepareSeries(sub events.Subject, expect Expect, evs []events.Event) ([]*appending, error) {
	whole, err := l.prepare(sub, expect, evs)
	if err != nil {
		return nil, err
	}
	list := make([]*appending, len(evs))
	for i := range list {
		p := *whole
		p.events, p.msgs = whole.events[i:i+1], whole.msgs[i:i+1]
		p.size = whole.size / len(evs)
		p.buffered = i < len(evs)-1 // the last one's acknowledgement covers the ones before it
		p.unshown = p.buffered
		if i > 0 {
			p.guarded = false
			p.look, p.youngUntil = false, time.Time{}
			if evs[i].ID != "" {
				p.age(evs[i].ID, l.config.Now(), true)
			}
		}
		list[i] = &p
	}
	return list, nil
}

// putSeries stores the events one after the other. It runs in the series' turn.
func (l *Log) putSeries(ctx context.Context, list []*appending) (all Ack, added int, err error) {
	all.Duplicate = true
	previous := events.Offset(0)
	for i, p := range list {
		if i > 0 {
			p.expect, p.behind = At(all.Last), previous
		}
		ack, err := l.put(ctx, p)
		if list[0].era.isOver() { // the events before this one may be gone
			err = l.stands(list[0], errEra)
		}
		if err == nil && i > 0 && ack.Last <= all.Last {
			err = &ConflictError{Subject: p.sub, Want: all.Last, Have: ack.Last}
		}
		if err != nil {
			return Ack{}, added, fmt.Errorf("event %d of %d: %w", i+1, len(list), err)
		}
		if i == 0 {
			all.First = ack.First
		}
		previous = 0
		if !ack.Duplicate {
			all.Duplicate, previous = false, ack.Last
			added++
		}
		all.Last, all.Durability, all.Unshown = ack.Last, ack.Durability, ack.Unshown
	}
	return all, added, nil
}
