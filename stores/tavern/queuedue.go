package tavern

import (
	"iter"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// QueueDecision is what a queue needs by itself at a time, whoever looks.
type QueueDecision struct {
	Bury []log.Part // each ends an item whose attempts are used up; to be appended one by one
	Free []string   // ids of items that are handed out to whoever asks: nothing is to be written
	Next time.Time  // when to look again: a lease is over, or an item is due; zero: when something happens
}

// DecideQueue says what a queue needs by the log's time now. Parts are guarded, and the same
// decision is the same event: two who decide at once decide it once. waits says whether an
// item comes after one that is not done, as projector.Work.Waits does.
func DecideQueue(namespace string, q projector.Queue, items iter.Seq[*projector.QueueItem], waits func(*projector.QueueItem) bool, now time.Time) (d QueueDecision, err error) {
	for i := range items {
		due := i.Due()
		switch {
		case i.Ended != 0 || i.Fence == 0 && waits(i):
		case due.After(now):
			if d.Next.IsZero() || due.Before(d.Next) {
				d.Next = due
			}
		case i.Attempts >= q.Settings.Attempts():
			part, err := burial(namespace, q, *i, now)
			if err != nil {
				return d, err
			}
			d.Bury = append(d.Bury, part)
		default:
			d.Free = append(d.Free, i.ID)
		}
	}
	return d, nil
}

// burial ends an item whose attempts are used up, on the condition that nobody has it.
func burial(namespace string, q projector.Queue, i projector.QueueItem, now time.Time) (log.Part, error) {
	result, err := failure(i.LastError(now), i.Attempts)
	if err != nil {
		return log.Part{}, err
	}
	return stopping(namespace, q, i, &events.RunFinished{Run: i.Run, Outcome: projector.OutcomeDead, Result: result, Fence: i.Fence})
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
