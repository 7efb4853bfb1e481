package log

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/tallylog/tally/internal/natswire"
)

// publisher speaks as much of the NATS protocol as appending takes, over a connection
// of its own to a server in this process. What many callers publish at the same time
// leaves in one write, each message is written once and not copied before, and an
// answer costs its caller one wake-up: half of what an append costs beside the server
// is here.
//
// Such a connection does not break but with the server. So there is no reconnecting:
// what is under way when it ends is unknown, and later calls are refused.
type publisher struct {
	conn  net.Conn
	inbox string // answers come to <inbox>.<number>
	wait  time.Duration

	mu      sync.Mutex // guards what follows
	room    sync.Cond  // out is empty again
	out     []byte     // not handed to the connection yet
	spare   []byte     // to be filled next
	pending map[uint64]chan<- answer
	number  uint64
	err     error // the connection is over

	flush   chan struct{} // there is something in out
	writing sync.Mutex    // held while something is handed over
	done    sync.WaitGroup
}

// answer is what the server says to a publication.
type answer struct {
	ack pubAck
	err error
}

// dialPublisher begins a connection that was made to the server.
func dialPublisher(login Login, wait time.Duration) (*publisher, error) {
	conn := login.Conn
	p := &publisher{conn: conn, inbox: "_INBOX." + nuid.Next(), wait: wait, pending: make(map[uint64]chan<- answer), flush: make(chan struct{}, 1)}
	p.room.L = &p.mu
	in, err := login.dial("tally appends", p.inbox, wait, 64<<10)
	if err != nil {
		return nil, err
	}
	p.done.Go(func() { p.end(p.read(in)) })
	p.done.Go(p.write)
	return p, nil
}

// publish sends a message of which no answer is wanted.
func (p *publisher) publish(m outbound) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.awaitRoom(); err != nil {
		return err
	}
	p.enqueue(m, 0) // the last one of its batch is a request, with which it leaves
	return nil
}

// mostWaiting bounds the bytes that wait for the connection.
const mostWaiting = 16 << 20

// awaitRoom returns when there is room for a message. The caller holds mu.
func (p *publisher) awaitRoom() error {
	for len(p.out) > mostWaiting && p.err == nil {
		p.room.Wait()
	}
	if p.err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, p.err)
	}
	return nil
}

// request sends a message and waits for the answer.
func (p *publisher) request(ctx context.Context, m outbound) (pubAck, error) {
	if err := ctx.Err(); err != nil {
		return pubAck{}, requestError(err)
	}
	got := make(chan answer, 1)
	p.mu.Lock()
	if err := p.awaitRoom(); err != nil {
		p.mu.Unlock()
		return pubAck{}, err
	}
	p.number++
	n := p.number
	p.pending[n] = got
	p.enqueue(m, n)
	p.mu.Unlock()
	p.push()

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
	p.mu.Lock()
	delete(p.pending, n)
	p.mu.Unlock()
	return pubAck{}, requestError(err)
}

// enqueue writes a message behind those that wait. The caller holds mu.
func (p *publisher) enqueue(m outbound, n uint64) {
	const version, end = "NATS/1.0\r\n", "\r\n"
	size := m.out.headerSize()
	for _, f := range m.extra {
		size += len(f.name) + len(": \r\n") + len(f.value)
	}
	b := append(append(p.out, "HPUB "...), m.subject...)
	b = append(b, ' ')
	if n != 0 {
		b = strconv.AppendUint(append(append(b, p.inbox...), '.'), n, 10)
		b = append(b, ' ')
	}
	b = strconv.AppendInt(b, int64(size), 10)
	b = strconv.AppendInt(append(b, ' '), int64(size+len(m.out.Data)), 10)
	b = append(append(b, end...), version...)
	for _, f := range m.extra {
		b = append(append(b, f.name...), ": "...)
		b = append(append(b, f.value...), end...)
	}
	b = append(append(b, m.out.Header...), end...)
	b = append(b, m.out.Data...)
	p.out = append(b, end...)
	if len(p.out) > mostWaiting/4 {
		p.kick() // whoever is to push it has more
	}
}

// kick has what waits written. The caller holds mu, and the connection is not over.
func (p *publisher) kick() {
	select {
	case p.flush <- struct{}{}:
	default:
	}
}

// push has what waits handed over: here and now if nothing else is, else by the writer,
// with what else has come by then.
func (p *publisher) push() {
	if p.writing.TryLock() {
		p.drain()
		p.writing.Unlock()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.kick()
	}
}

// write hands over what waits, all of it at once, until the connection ends.
func (p *publisher) write() {
	for range p.flush {
		p.writing.Lock()
		p.drain()
		p.writing.Unlock()
	}
}

// drain hands over what waits. The caller holds writing.
func (p *publisher) drain() {
	p.mu.Lock()
	out := p.out
	p.out, p.spare = p.spare[:0], nil
	p.room.Broadcast()
	p.mu.Unlock()
	if len(out) > 0 {
		if _, err := p.conn.Write(out); err != nil {
			p.end(err)
		}
	}
	if cap(out) > 1<<20 {
		return // one large message shall not be paid for for ever
	}
	p.mu.Lock()
	p.spare = out
	p.mu.Unlock()
}

// read takes what the server says until the connection ends.
func (p *publisher) read(in *natswire.Reader) error {
	return in.Read(natswire.Handler{Message: p.answer, Ping: func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil {
			p.out = append(p.out, "PONG\r\n"...)
			p.kick()
		}
		return nil
	}})
}

// answer wakes the caller that a message answers.
func (p *publisher) answer(m natswire.Message) error {
	n, err := strconv.ParseUint(string(m.Subject[min(len(p.inbox)+len("."), len(m.Subject)):]), 10, 64)
	if err != nil {
		return fmt.Errorf("the server answers to %q", m.Subject)
	}
	p.mu.Lock()
	got := p.pending[n]
	delete(p.pending, n)
	p.mu.Unlock()
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

// end gives up: what is under way is unknown.
func (p *publisher) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = fmt.Errorf("the connection to the server ended: %v", err)
	for n, got := range p.pending {
		got <- answer{err: fmt.Errorf("%w: no ack: %v", ErrUnknown, p.err)}
		delete(p.pending, n)
	}
	close(p.flush)
	p.room.Broadcast()
	p.conn.Close()
}

// abandon gives up what is under way: no answer will come.
func (p *publisher) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, got := range p.pending {
		got <- answer{err: fmt.Errorf("%w: the server could not write", ErrUnknown)}
		delete(p.pending, n)
	}
}

// close ends the connection. Nothing is under way any more.
func (p *publisher) close() {
	p.end(net.ErrClosed)
	p.done.Wait()
}
