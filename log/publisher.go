package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallylog/tally/internal/nats/natswire"
)

// publisher appends over a connection of its own to a server in this process. An answer wakes its caller once; the
// client code is half of an append's cost outside the server.
//
// If the connection ends, appends under way return ErrUnknown and later calls are refused.
type publisher struct {
	conn  *natswire.Conn
	wait  time.Duration
	waits limit

	mu      sync.Mutex // guards the fields below
	pending map[uint64]chan<- answer
	number  uint64
}

// answer is the server's answer to a publication.
type answer struct {
	ack pubAck
	err error
}

// dialPublisher logs in on a new connection to the server.
func dialPublisher(login Login, wait time.Duration) (*publisher, error) {
	p := &publisher{wait: wait, pending: make(map[uint64]chan<- answer)}
	var err error
	p.conn, err = login.dial("tally appends", wait, 64<<10, natswire.Handler{Message: p.answer, Over: func(err error) {
		p.giveUp(fmt.Errorf("%w: no acknowledgement: %v", ErrUnknown, err))
	}})
	return p, err
}

// publish sends a message without asking for an answer.
func (p *publisher) publish(m natswire.Publication) error {
	if err := p.conn.Publish(m); err != nil { // the last message of the atomic batch is a request, which flushes this one
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

// requests sends messages one after the other, and waits for the answers to all of them.
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

// send queues a message behind the ones that wait for a Push.
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
	err := error(context.DeadlineExceeded)
	select {
	case a := <-got:
		return a.ack, a.err
	case <-p.waits.after(p.wait):
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.take(number)
	return pubAck{}, requestError(err)
}

// take removes and returns the channel that waits for an answer.
func (p *publisher) take(number uint64) chan<- answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.pending[number]
	delete(p.pending, number)
	return got
}

// answer passes a message to the caller that waits for it.
func (p *publisher) answer(m natswire.Message) error {
	n, err := m.Number()
	if err != nil {
		return fmt.Errorf("the server sent an answer to the unknown subject %q", m.Subject)
	}
	got := p.take(n)
	if got == nil {
		return nil // the caller has stopped waiting
	}
	if m.Header != nil { // a status without a body: no stream has the subject
		got <- answer{err: fmt.Errorf("%w: no stream has the subject", ErrUnavailable)}
		return nil
	}
	ack, err := parseAck(m.Data)
	got <- answer{ack, err}
	return nil
}

// giveUp ends all calls under way with an error.
func (p *publisher) giveUp(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, got := range p.pending {
		got <- answer{err: err}
		delete(p.pending, n)
	}
}
