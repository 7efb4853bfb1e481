package tavern

import (
	"context"
	"iter"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// QueueDecision is what a queue needs by itself at a time, whoever looks.
type QueueDecision struct {
	Ends []Decision // each ends an item that nobody has
	Next time.Time  // when to look again: a lease is over, or an item is due; zero: when something happens
}

// DecideQueue says what a queue needs by the log's time now. Parts are guarded, and the same
// decision is the same event: two who decide at once decide it once. waits says whether an
// item comes after one that is not done, as projector.Work.Waits does.
func DecideQueue(namespace string, q projector.Queue, items iter.Seq[*projector.QueueItem], waits func(*projector.QueueItem) bool, now time.Time) (d QueueDecision, err error) {
	for i := range items {
		if i.Ended != 0 {
			continue
		}
		end, err := ending(namespace, q, *i, now)
		if err != nil {
			return d, err
		}
		due, waiting := i.Due(), i.Fence == 0 && waits(i)
		expires, _ := i.ExpiresAt.Time()
		switch {
		case i.IsExpired(now), len(end.Parts) > 0 && !waiting && !due.After(now):
			d.Ends = append(d.Ends, end)
			continue
		case waiting:
			due = time.Time{}
		}
		for _, at := range []time.Time{due, expires} {
			if at.After(now) && (d.Next.IsZero() || at.Before(d.Next)) {
				d.Next = at
			}
		}
	}
	return d, nil
}

// ending ends an item that nobody has and that is not to be handed out, as its time is over or
// its attempts are used up. Of any other nothing is due.
func ending(namespace string, q projector.Queue, i projector.QueueItem, now time.Time) (d Decision, err error) {
	p := &events.RunFinished{Run: i.Run, Result: events.Raw("null"), Fence: i.Fence}
	switch {
	case i.IsExpired(now):
		d.Why, p.Outcome = "expired", projector.OutcomeExpired
	case i.Ended == 0 && !i.IsHeld(now) && i.Attempts >= q.Settings.Attempts():
		d.Why, p.Outcome = "dead", projector.OutcomeDead
		p.Result, err = failure(i.LastError(now), i.Attempts)
	default:
		return d, nil
	}
	if err == nil {
		d.Parts = make([]log.Part, 1)
		d.Parts[0], err = stopping(namespace, q, i, p)
	}
	return d, err
}

// stopping makes the append that ends an item as it is.
func stopping(namespace string, q projector.Queue, i projector.QueueItem, p *events.RunFinished) (log.Part, error) {
	sub, expect := events.Session(namespace, projector.ItemSession(q.ID, i.ID)), log.At(i.Last)
	last := i.Last
	if q.Settings.Serial {
		last = max(q.LastRun, i.At)
		sub, expect = events.Session(namespace, projector.QueueSession(q.ID)), log.Since(last, runTypes...)
	}
	e, err := events.New(queueSource, sub, p)
	e.ID = events.DerivedID(p.Outcome, i.Run.String(), last.String())
	return log.Part{Subject: sub, Expect: expect, Events: []events.Event{e}}, err
}

// open returns an item that is to be done, as it is now, with its queue; nil if it is not.
func (q *Queue) open(ctx context.Context, id string) (*projector.QueueItem, projector.Queue, error) {
	b, err := q.enter(ctx)
	if err != nil {
		return nil, projector.Queue{}, err
	}
	defer b.leave()
	if err := b.catchUp(ctx); err != nil {
		return nil, projector.Queue{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.work.Items[id]
	if i == nil || i.Ended != 0 {
		return nil, b.work.Queue, nil
	}
	now := *i
	return &now, b.work.Queue, nil
}
