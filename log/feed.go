package log

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/nats/natswire"
)

// feed reads one consumer over a connection of its own to a server in this process. It keeps headers as text and hands
// messages over in groups; with the NATS client these two are most of a record's cost. The reader makes a new feed when
// this one ends.
type feed struct {
	conn *natswire.Conn
	some []incoming // of the connection, not handed over yet

	mu      sync.Mutex // guards the fields below
	arrived []incoming // not taken yet; at most as many as were requested
	err     error      // why the connection ended

	more  chan struct{} // something arrived, or the connection ended
	taken []incoming    // the receiver's own; those before next are used up
	next  int
}

// dialFeed logs in on a new connection to the server.
func dialFeed(login Login) (*feed, error) {
	f := &feed{more: make(chan struct{}, 1)}
	var err error
	f.conn, err = login.dial("tally reads", silence, 256<<10, natswire.Handler{Message: f.message, Idle: f.handSome, Over: func(err error) { f.hand(nil, err) }})
	return f, err
}

// request implements inbox. It does not wait until the server has read the request: receive does.
func (f *feed) request(n int, subject string, body []byte) (reply string, err error) {
	if err := f.conn.Publish(natswire.Publication{Subject: subject, Number: uint64(n), Data: body}); err != nil {
		return "", fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	f.conn.Kick()
	return f.conn.Answers(uint64(n)), nil
}

// receive implements inbox.
func (f *feed) receive(ctx context.Context, _ <-chan struct{}) (incoming, error) {
	for f.next == len(f.taken) {
		if err := f.take(); err != nil {
			return incoming{}, err
		}
		if len(f.taken) == 0 {
			if err := f.await(ctx); err != nil {
				return incoming{}, err
			}
		}
	}
	a := f.taken[f.next]
	f.taken[f.next] = incoming{} // only the reader holds its bytes now
	f.next++
	return a, nil
}

// await returns when there may be messages to take.
func (f *feed) await(ctx context.Context) error {
	select {
	case <-f.more:
		return nil
	case <-time.After(silence):
		return fmt.Errorf("%w: no message from the server within %v", ErrUnavailable, silence)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take moves everything that arrived to taken.
func (f *feed) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken, f.arrived, f.next = f.arrived, f.taken[:0], 0
	if len(f.taken) == 0 && f.err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, f.err)
	}
	return nil
}

// close implements inbox.
func (f *feed) close() { f.conn.Close() }

// hand passes messages to the receiver, and the error after which there will be no more.
func (f *feed) hand(some []incoming, err error) {
	f.mu.Lock()
	f.arrived, f.err = append(f.arrived, some...), err
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// handEvery bounds how many messages the connection collects before it hands them over.
const handEvery = 128

// message handles a message that arrived.
func (f *feed) message(m natswire.Message) error {
	a, err := incomingOf(Message{Subject: string(m.Subject), wire: string(m.Header), Data: m.Data}, string(m.Reply), m.Size())
	if f.some = append(f.some, a); err == nil && len(f.some) >= handEvery {
		f.handSome()
	}
	return err
}

// handSome hands over the collected messages.
func (f *feed) handSome() {
	if len(f.some) > 0 {
		f.hand(f.some, nil)
		clear(f.some)
		f.some = f.some[:0]
	}
}

// header returns the message's header as the NATS client parses it, or nil if it is malformed.
func (m Message) header() nats.Header {
	if m.wire == "" {
		return m.Header
	}
	h, err := nats.DecodeHeadersMsg([]byte(m.wire))
	if err != nil {
		return nil
	}
	return h
}

// field returns the value of a header field, or "" if it is missing or occurs more than once.
func (m Message) field(name string) string {
	values := m.header()[name]
	if len(values) != 1 {
		return ""
	}
	return values[0]
}
