package log

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
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
	in := bufio.NewReaderSize(f.conn, 256<<10)
	if err := greet(login, in, "tally reads", f.inbox, silence); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnavailable, err), f.conn.Close())
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
func (f *feed) read(in *bufio.Reader) error {
	var some []incoming
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch verb, _, _ := bytes.Cut(line, []byte(" ")); string(bytes.TrimSpace(verb)) {
		case "MSG", "HMSG":
			a, err := readIncoming(in, line)
			if err != nil {
				return err
			}
			some = append(some, a)
		case "PING":
			if err := f.write([]byte("PONG\r\n")); err != nil {
				return err
			}
		case "-ERR":
			return fmt.Errorf("the server says %s", bytes.TrimSpace(line))
		}
		if len(some) > 0 && (in.Buffered() == 0 || len(some) >= handEvery) {
			f.hand(some, nil)
			clear(some)
			some = some[:0]
		}
	}
}

// mostMessage bounds what a message has, headers and data.
const mostMessage = 64 << 20

// readIncoming reads what follows the line of a message,
//
//	MSG <subject> <sid> [<reply>] <size>
//	HMSG <subject> <sid> [<reply>] <size of the header> <size>
//
// which is no longer valid then.
func readIncoming(in *bufio.Reader, line []byte) (incoming, error) {
	fields, n := splitFields(line)
	numbers := 1
	if string(fields[0]) == "HMSG" {
		numbers = 2
	}
	header, size := 0, 0
	ok := n == 3+numbers || n == 4+numbers
	if ok {
		size, ok = parseSize(fields[n-1])
	}
	if ok && numbers == 2 {
		header, ok = parseSize(fields[n-2])
	}
	if !ok || header > size {
		return incoming{}, fmt.Errorf("the server says %q", line)
	}
	a := incoming{Message: Message{Subject: string(fields[1])}, size: len(fields[1]) + size}
	if n == 4+numbers {
		a.size += len(fields[3])
		d, err := parseDelivery(string(fields[3]))
		if err != nil {
			return incoming{}, err
		}
		a.Offset, a.Time, a.number = d.offset, d.time, d.number
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(in, body); err != nil {
		return incoming{}, err
	}
	if _, err := in.Discard(len("\r\n")); err != nil {
		return incoming{}, err
	}
	a.wire, a.Data = string(body[:header]), body[header:]
	return a, nil
}

// splitFields gives the words of a line. Of more than a message has, n is too large.
func splitFields(line []byte) (fields [6][]byte, n int) {
	for word := range bytes.FieldsSeq(line) {
		if n < len(fields) {
			fields[n] = word
		}
		n++
	}
	return fields, n
}

func parseSize(digits []byte) (int, bool) {
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' || n > mostMessage {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(digits) > 0 && n <= mostMessage
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
