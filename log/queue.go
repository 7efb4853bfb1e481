package log

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// queue orders the appends of one Log to one subject: the first is being stored, the others wait. A subject without
// appends has no queue.
type queue []*ticket

// ticket is an append in the queue of its subject.
type ticket struct {
	sub  events.Subject
	turn chan struct{} // closed when the append may run, or was aborted
	err  error         // set before turn is closed if the append was aborted
}

// enter adds a ticket to the subject's queue.
func (l *Log) enter(sub events.Subject) (*ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return nil, l.errClosed("append to " + sub.Name())
	}
	return l.enqueue(sub), nil
}

// enqueue is enter. The caller holds mu.
func (l *Log) enqueue(sub events.Subject) *ticket {
	t := &ticket{sub: sub, turn: make(chan struct{})}
	l.running.Add(1)
	if q, busy := l.queues[sub]; busy {
		l.queues[sub] = append(q, t)
		return t
	}
	l.queues[sub] = nil
	close(t.turn)
	return t
}

// enterAll adds a ticket to the queue of each part's subject, to all of them at once. If two appends meet in several
// queues, the same one is ahead in each, so they cannot deadlock.
func (l *Log) enterAll(parts []*appending) ([]*ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return nil, l.errClosed("append")
	}
	tickets := make([]*ticket, len(parts))
	for i, p := range parts {
		tickets[i] = l.enqueue(p.sub)
	}
	return tickets, nil
}

// awaitAll returns when it is the turn of all tickets. After an error all have left their queues.
func (l *Log) awaitAll(ctx context.Context, tickets []*ticket) error {
	for i, t := range tickets {
		if err := l.await(ctx, t); err != nil {
			l.leaveAll(tickets[:i])
			for _, later := range tickets[i+1:] {
				l.pass(later)
			}
			return err
		}
	}
	return nil
}

// pass returns a ticket whose append will not run.
func (l *Log) pass(t *ticket) {
	if l.withdraw(t) {
		l.running.Done()
		return
	}
	<-t.turn // its turn has come just now
	if t.err != nil {
		l.running.Done()
		return
	}
	l.leave(t, false)
}

func (l *Log) leaveAll(tickets []*ticket) {
	for _, t := range tickets {
		l.leave(t, false)
	}
}

// await returns when it is t's turn. After an error t has left the queue.
func (l *Log) await(ctx context.Context, t *ticket) error {
	select {
	case <-t.turn:
	case <-ctx.Done():
		if l.withdraw(t) {
			l.running.Done()
			return fmt.Errorf("append to %s: not written: %w", t.sub.Name(), ctx.Err())
		}
		<-t.turn
	}
	if t.err != nil {
		l.running.Done()
	}
	return t.err
}

// withdraw takes t out of the queue, unless its turn has come.
func (l *Log) withdraw(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[t.sub]
	i := slices.Index(q, t)
	if i < 0 {
		return false
	}
	l.queues[t.sub] = slices.Delete(q, i, i+1)
	return true
}

// leave ends t's turn. With abort, the appends behind it are aborted.
func (l *Log) leave(t *ticket, abort bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.running.Done()
	q := l.queues[t.sub]
	if abort {
		for _, w := range q {
			w.err = fmt.Errorf("append to %s: %w: an earlier append to it failed", w.sub.Name(), ErrAborted)
			close(w.turn)
		}
		q = nil
	}
	if len(q) == 0 {
		delete(l.queues, t.sub)
		return
	}
	next := q[0]
	q[0] = nil
	l.queues[t.sub] = q[1:]
	close(next.turn)
}
