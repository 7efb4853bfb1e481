package log

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tallylog/tally/internal/natswire"
)

// feed is a connection of its own to a server in this process, by which one consumer
// is read. It speaks as much of the NATS protocol as that takes: headers stay the
// text they are, and messages are handed over many at a time, which is most of what a
// record costs with the NATS client.
//
// Such a connection does not break but with the server: who reads makes another.
type feed struct {
	conn    net.Conn
	inbox   string
	writing sync.Mutex // held while something is written

	mu      sync.Mutex // guards what follows
	arrived []incoming // and not taken; no more than was asked for
	err     error      // the connection is over

	more  chan struct{} // something arrived, or the connection is over
	taken []incoming    // the receiver's own; those before next are used up
	next  int
	done  chan struct{} // the reader is gone
}

// dialFeed begins a connection that was made to the server.
func dialFeed(login Login) (*feed, error) {
	f := &feed{conn: login.Conn, inbox: "_INBOX." + nuid.Next(), more: make(chan struct{}, 1), done: make(chan struct{})}
	in, err := login.dial("tally reads", f.inbox, silence, 256<<10)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(f.done)
		f.hand(nil, f.read(in))
	}()
	return f, nil
}

// request implements inbox.
func (f *feed) request(n int, subject string, body []byte) (reply string, err error) {
	reply = f.inbox + "." + strconv.Itoa(n)
	if err := f.write(fmt.Appendf(nil, "PUB %s %s %d\r\n%s\r\n", subject, reply, len(body), body)); err != nil {
		return "", fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return reply, nil
}

func (f *feed) write(b []byte) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.conn.SetWriteDeadline(time.Now().Add(silence)); err != nil {
		return err
	}
	_, err := f.conn.Write(b)
	return err
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
	f.taken[f.next] = incoming{} // its bytes are the reader's alone
	f.next++
	return a, nil
}

// await returns when there may be something to take.
func (f *feed) await(ctx context.Context) error {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case <-f.more:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: the server is silent", ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take gets hold of everything that arrived.
func (f *feed) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken, f.arrived, f.next = f.arrived, f.taken[:0], 0
	if len(f.taken) == 0 && f.err != nil {
		return fmt.Errorf("%w: the connection ended: %v", ErrUnavailable, f.err)
	}
	return nil
}

// close implements inbox.
func (f *feed) close() {
	f.conn.Close()
	<-f.done
}

// hand gives what was read to the receiver, and says why there will be no more.
func (f *feed) hand(some []incoming, err error) {
	f.mu.Lock()
	f.arrived, f.err = append(f.arrived, some...), err
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// handEvery bounds how many messages wait for others.
const handEvery = 128

// read takes what the server says until the connection ends.
func (f *feed) read(in *natswire.Reader) error {
	var some []incoming
	hand := func() {
		if len(some) > 0 {
			f.hand(some, nil)
			clear(some)
			some = some[:0]
		}
	}
	return in.Read(natswire.Handler{
		Message: func(m natswire.Message) error {
			a, err := incomingOf(m)
			if some = append(some, a); err == nil && len(some) >= handEvery {
				hand()
			}
			return err
		},
		Ping: func() error { return f.write([]byte("PONG\r\n")) },
		Idle: hand,
	})
}

// incomingOf reads what a consumer says about a message. Its header stays text.
func incomingOf(m natswire.Message) (incoming, error) {
	a := incoming{Message: Message{Subject: string(m.Subject), wire: string(m.Header), Data: m.Data}, size: m.Size()}
	if len(m.Reply) == 0 {
		return a, nil
	}
	d, err := parseDelivery(string(m.Reply))
	a.Offset, a.Time, a.number = d.offset, d.time, d.number
	return a, err
}

// header gives the message's header as the NATS client does: none, if it is broken.
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

// field gives the value of a header field, "" if it is not there or there more than once.
func (m Message) field(name string) (value string) {
	if m.wire == "" {
		if values := m.Header[name]; len(values) == 1 {
			value = values[0]
		}
		return value
	}
	found := 0
	for line := range strings.SplitSeq(m.wire, "\r\n") {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.HasPrefix(rest, ":") {
			value = strings.TrimSpace(rest[1:])
			found++
		}
	}
	if found > 1 {
		return ""
	}
	return value
}
