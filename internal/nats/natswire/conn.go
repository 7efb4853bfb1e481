package natswire

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// Conn is a connection after the login. It is safe for concurrent use.
type Conn struct {
	conn  net.Conn
	inbox string
	over  func(error)

	mu    sync.Mutex // guards the fields below
	room  sync.Cond  // signals that out is empty
	out   []byte     // not written to the connection yet
	spare []byte     // the next out
	err   error      // why the connection ended

	flush   chan struct{} // out is not empty
	writing sync.Mutex    // held while a goroutine writes to the connection
	done    sync.WaitGroup
}

// Dial logs in on a connection to a server, owns it and reads it from then on. After an error it is closed.
func Dial(conn net.Conn, hello Hello, h Handler) (*Conn, error) {
	c := &Conn{conn: conn, inbox: "_INBOX." + rand.Text(), over: h.Over, flush: make(chan struct{}, 1)}
	c.room.L = &c.mu
	r, err := greet(conn, hello, c.inbox)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.done.Go(func() { c.end(r.read(h, c.pong)) })
	c.done.Go(c.write)
	return c, nil
}

// Answers returns the subject for answers to the message with this number.
func (c *Conn) Answers(number uint64) string { return c.inbox + "." + strconv.FormatUint(number, 10) }

// Number returns the number of the message that this one answers.
func (m Message) Number() (uint64, error) {
	return strconv.ParseUint(string(m.Subject[bytes.LastIndexByte(m.Subject, '.')+1:]), 10, 64)
}

// Publication is a message to the server.
type Publication struct {
	Subject string
	Number  uint64  // of the inbox, for its answers; 0: no answer is wanted
	Extra   []Field // header fields before Header
	Header  []byte  // fields as NATS carries them: lines "name: value\r\n"
	Data    []byte
}

// Field is a field of a header.
type Field struct{ Name, Value string }

const (
	maxWaiting = 16 << 20  // bytes that wait to be written
	large      = 256 << 10 // size from which on a message's data are not copied
)

// Publish queues a message; Push or Kick writes it. It blocks while too many bytes wait, and until a large message is
// written. An error reports that the connection has ended, and that no byte of the message was sent.
func (c *Conn) Publish(p Publication) error {
	if len(p.Data) >= large {
		return c.hand(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > maxWaiting && c.err == nil {
		c.room.Wait()
	}
	if c.err != nil {
		return c.err
	}
	c.out = append(append(c.head(c.out, p), p.Data...), "\r\n"...)
	if len(c.out) > maxWaiting/4 {
		c.kick() // the caller of Push has more messages to queue
	}
	return nil
}

// hand writes the queue, and then a message, whose data it does not keep.
func (c *Conn) hand(p Publication) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.drain()
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return err
	}
	for _, part := range [][]byte{c.head(nil, p), p.Data, []byte("\r\n")} {
		if _, err := c.conn.Write(part); err != nil {
			c.end(err) // no answer will come any more
			return nil
		}
	}
	return nil
}

// head appends the protocol line and the header of a message:
//
//	PUB <subject> [<reply>] <size>
//	HPUB <subject> [<reply>] <size of the header> <size>
func (c *Conn) head(b []byte, p Publication) []byte {
	const version, end = "NATS/1.0\r\n", "\r\n"
	header := len(p.Extra)+len(p.Header) > 0
	verb, size := "PUB ", 0
	if header {
		verb, size = "HPUB ", len(version)+len(p.Header)+len(end)
	}
	for _, f := range p.Extra {
		size += len(f.Name) + len(": \r\n") + len(f.Value)
	}
	b = append(append(append(b, verb...), p.Subject...), ' ')
	if p.Number != 0 {
		b = strconv.AppendUint(append(append(b, c.inbox...), '.'), p.Number, 10)
		b = append(b, ' ')
	}
	if header {
		b = append(strconv.AppendInt(b, int64(size), 10), ' ')
	}
	b = append(strconv.AppendInt(b, int64(size+len(p.Data)), 10), end...)
	if header {
		b = append(b, version...)
		for _, f := range p.Extra {
			b = append(append(b, f.Name...), ": "...)
			b = append(append(b, f.Value...), end...)
		}
		b = append(append(b, p.Header...), end...)
	}
	return b
}

// Kick makes another goroutine write the queue.
func (c *Conn) Kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kick()
}

// kick is Kick. The caller holds mu.
func (c *Conn) kick() {
	if c.err != nil {
		return // flush is closed
	}
	select {
	case c.flush <- struct{}{}:
	default:
	}
}

// Push writes the queue. If another goroutine is writing, that one also writes this queue.
func (c *Conn) Push() {
	if !c.writing.TryLock() {
		c.Kick()
		return
	}
	defer c.writing.Unlock()
	c.drain()
}

// write writes the queue, all of it at once, until the connection ends.
func (c *Conn) write() {
	for range c.flush {
		c.writing.Lock()
		c.drain()
		c.writing.Unlock()
	}
}

// drain writes the queue. The caller holds writing.
func (c *Conn) drain() {
	c.mu.Lock()
	out := c.out
	c.out, c.spare = c.spare[:0], nil
	c.room.Broadcast()
	c.mu.Unlock()
	if len(out) > 0 {
		if _, err := c.conn.Write(out); err != nil {
			c.end(err)
		}
	}
	if cap(out) > 1<<20 {
		return // do not keep the buffer of a large message
	}
	c.mu.Lock()
	c.spare = out
	c.mu.Unlock()
}

// pong answers a ping.
func (c *Conn) pong() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, "PONG\r\n"...)
	c.kick()
}

// end ends the connection with an error.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("the connection to the server ended: %v", err)
	close(c.flush)
	c.room.Broadcast()
	c.mu.Unlock()
	c.conn.Close()
	c.over(c.err)
}

// Close ends the connection, and returns when the handler is not called any more.
func (c *Conn) Close() {
	c.end(net.ErrClosed)
	c.done.Wait()
}
