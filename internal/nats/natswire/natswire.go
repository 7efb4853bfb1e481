// Package natswire speaks as much of the NATS protocol as a log needs over a connection of
// its own to a server in this process: who it is, one inbox, the messages that come there,
// and those that go to the server. A general client parses every header into a map and
// hands messages over one by one; here headers stay the text they are, whoever reads
// decides how many messages make a hand-over, and what many callers publish at the same
// time leaves in one write.
//
// Such a connection does not break but with the server: there is no reconnecting.
package natswire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Hello is what a connection begins with.
type Hello struct {
	Name           string // of the connection, for those who look at the server
	Version        string // of this program
	User, Password string
	Wait           time.Duration // for the server to agree
	Buffer         int           // bytes that are read at once
}

// reader reads what a server says.
type reader struct {
	in             *bufio.Reader
	subject, reply []byte // of the message at hand
}

func newReader(r io.Reader, size int) *reader { return &reader{in: bufio.NewReaderSize(r, size)} }

// greet says to a server who this is and where its answers shall go, and returns when the
// server has agreed.
func greet(conn net.Conn, h Hello, inbox string) (*reader, error) {
	if err := conn.SetDeadline(time.Now().Add(h.Wait)); err != nil {
		return nil, err
	}
	r := newReader(conn, h.Buffer)
	if _, err := r.in.ReadSlice('\n'); err != nil { // INFO {...}
		return nil, err
	}
	hello, err := json.Marshal(map[string]any{
		"verbose": false, "pedantic": false, "lang": "go", "version": h.Version, "name": h.Name, "protocol": 1,
		"user": h.User, "pass": h.Password, "headers": true, "no_responders": true, "echo": false,
	})
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nSUB %s.* 1\r\nPING\r\n", hello, inbox); err != nil {
		return nil, err
	}
	for {
		line, err := r.in.ReadSlice('\n')
		switch {
		case err != nil:
			return nil, err
		case bytes.HasPrefix(line, []byte("PONG")):
			return r, conn.SetDeadline(time.Time{})
		case bytes.HasPrefix(line, []byte("-ERR")):
			return nil, fmt.Errorf("the server says %s", bytes.TrimSpace(line[4:]))
		}
	}
}

// Message is what came to the inbox.
type Message struct {
	Subject, Reply []byte // valid until the handler returns
	Header         []byte // as text, its first line and the empty last one among it; nil: none
	Data           []byte // like Header, the handler's own
}

// Size is what the server counts of a message, in bytes.
func (m Message) Size() int { return len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data) }

// MaxMessage bounds what a message has, header and data, in bytes.
const MaxMessage = 64 << 20

// Handler is told what a server says, by one goroutine.
type Handler struct {
	Message func(Message) error // an error ends the connection
	Idle    func()              // nothing that came is left to read; may be nil
	Over    func(error)         // the connection is over: nothing more comes
}

// read takes what the server says until the connection ends, and returns why. ping is
// called when the server wants to know whether somebody is here.
func (r *reader) read(h Handler, ping func()) error {
	for {
		line, err := r.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		verb, _, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(" "))
		switch string(verb) {
		case "MSG", "HMSG":
			var m Message
			if m, err = r.message(line); err == nil {
				err = h.Message(m)
			}
		case "PING":
			ping()
		case "-ERR":
			err = fmt.Errorf("the server says %s", bytes.TrimSpace(line))
		}
		if err != nil {
			return err
		}
		if h.Idle != nil && r.in.Buffered() == 0 {
			h.Idle()
		}
	}
}

// message reads what follows the line of a message,
//
//	MSG <subject> <sid> [<reply>] <size>
//	HMSG <subject> <sid> [<reply>] <size of the header> <size>
//
// which is no longer valid then.
func (r *reader) message(line []byte) (Message, error) {
	fields, n := split(line)
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
		return Message{}, fmt.Errorf("the server says %q", line)
	}
	r.subject, r.reply = append(r.subject[:0], fields[1]...), r.reply[:0]
	if n == 4+numbers {
		r.reply = append(r.reply, fields[3]...)
	}
	m := Message{Subject: r.subject, Reply: r.reply}
	body := make([]byte, size)
	if _, err := io.ReadFull(r.in, body); err != nil {
		return Message{}, err
	}
	if _, err := r.in.Discard(len("\r\n")); err != nil {
		return Message{}, err
	}
	if header > 0 {
		m.Header = body[:header:header]
	}
	m.Data = body[header:]
	return m, nil
}

// split returns the words of a line. Of more than a message has, n is too large.
func split(line []byte) (fields [6][]byte, n int) {
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
		if c < '0' || c > '9' || n > MaxMessage {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(digits) > 0 && n <= MaxMessage
}
