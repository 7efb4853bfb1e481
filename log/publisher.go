package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallylog/tally/internal/nats/natswire"
)

// publisher appends over a connection of its own to a server in this process. An answer
// costs its caller one wake-up: half of what an append costs beside the server is here.
//
// What is under way when the connection ends is unknown, and later calls are refused.
type publisher struct {
	conn *natswire.Conn
	wait time.Duration

	mu      sync.Mutex // guards what follows
	pending map[uint64]chan<- answer
	number  uint64
}

// answer is what the server says to a publication.
type answer struct {
	ack pubAck
	err error
}

// dialPublisher begins a connection that was made to the server.
func dialPublisher(login Login, wait time.Duration) (*publisher, error) {
	p := &publisher{wait: wait, pending: make(map[uint64]chan<- answer)}
	var err error
	p.conn, err = login.dial("tally appends", wait, 64<<10, natswire.Handler{Message: p.answer, Over: func(err error) {
		p.giveUp(fmt.Errorf("%w: no ack: %v", ErrUnknown, err))
	}})
	return p, err
}

// publish sends a message of which no answer is wanted.
func (p *publisher) publish(m natswire.Publication) error {
	if err := p.conn.Publish(m); err != nil { // the last one of its batch is a request, with which it leaves
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return nil
}

// request sends a message and waits for the answer.
func (p *publisher) request(ctx context.Context, m natswire.Publication) (pubAck, error) {
	if err := ctx.Err(); err != nil {
		return pubAck{}, requestError(err)
	}
	number, got, err := p.send(m)
	if err != nil {
		return pubAck{}, err
	}
	p.conn.Push()
	return p.receive(ctx, number, got)
}

// requests sends messages one behind the other, and waits for the answers to all of them.
func (p *publisher) requests(ctx context.Context, list []natswire.Publication) ([]pubAck, error) {
	if err := ctx.Err(); err != nil {
		return nil, requestError(err)
	}
	acks, numbers, got := make([]pubAck, len(list)), make([]uint64, len(list)), make([]<-chan answer, len(list))
	var err error
	for i, m := range list {
		if numbers[i], got[i], err = p.send(m); err != nil {
			list = list[:i]
			break
		}
	}
	p.conn.Push()
	for i := range list {
		ack, failed := p.receive(ctx, numbers[i], got[i])
		acks[i], err = ack, errors.Join(err, failed)
	}
	return acks, err
}

// send puts a message behind those that wait, for a Push.
func (p *publisher) send(m natswire.Publication) (number uint64, _ <-chan answer, err error) {
	got := make(chan answer, 1)
	p.mu.Lock()
	p.number++
	m.Number = p.number
	p.pending[m.Number] = got
	p.mu.Unlock()
	if err := p.publish(m); err != nil {
		p.take(m.Number)
		return 0, nil, err
	}
	return m.Number, got, nil
}

// receive waits for the answer to a message.
func (p *publisher) receive(ctx context.Context, number uint64, got <-chan answer) (pubAck, error) {
	timer := timers.start(p.wait)
	defer timers.stop(timer)
	err := error(context.DeadlineExceeded)
	select {
	case a := <-got:
		return a.ack, a.err
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.take(number)
	return pubAck{}, requestError(err)
}

// take returns who waits for an answer, once.
func (p *publisher) take(number uint64) chan<- answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.pending[number]
	delete(p.pending, number)
	return got
}

// answer wakes the caller that a message answers.
func (p *publisher) answer(m natswire.Message) error {
	n, err := m.Number()
	if err != nil {
		return fmt.Errorf("the server answers to %q", m.Subject)
	}
	got := p.take(n)
	if got == nil {
		return nil // nobody waits any more
	}
	if m.Header != nil { // a status without a body: nobody takes the subject
		got <- answer{err: fmt.Errorf("%w: no stream takes the subject", ErrUnavailable)}
		return nil
	}
	ack, err := parseAck(m.Data)
	got <- answer{ack, err}
	return nil
}

// giveUp answers what is under way: no other answer will come.
func (p *publisher) giveUp(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, got := range p.pending {
		got <- answer{err: err}
		delete(p.pending, n)
	}
}
