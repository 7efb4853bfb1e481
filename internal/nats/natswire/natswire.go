// Package natswire implements the part of the NATS protocol that a log needs on a connection of its own to a server in
// this process: the login, one inbox, and publishing. A general client parses every header into a map and delivers
// messages one by one. Here headers stay text, the reader decides how many messages it takes at once, and messages of
// many concurrent callers leave in one write.
//
// Such a connection ends only with the server, so it does not reconnect.
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

// Hello has the parameters of a login.
type Hello struct {
	Name           string // of the connection, shown by the server's monitoring
	Version        string // of this program
	User, Password string
	Wait           time.Duration // for the server's answer
	Buffer         int           // size of the read buffer, in bytes
}

// reader reads the server's protocol lines.
type reader struct {
	in             *bufio.Reader
	subject, reply []byte // of the current message
}

func newReader(r io.Reader, size int) *reader { return &reader{in: bufio.NewReaderSize(r, size)} }

// greet logs in, subscribes to the inbox, and returns when the server has confirmed.
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
			return nil, fmt.Errorf("the server answered %s", bytes.TrimSpace(line[4:]))
		}
	}
}

// Message is a message that arrived at the inbox.
type Message struct {
	Subject, Reply []byte // valid until the handler returns
	Header         []byte // as text, including its first line and the final empty one; nil: none
	Data           []byte // owned by the handler, like Header
}

// Size returns the size of a message as the server counts it, in bytes.
func (m Message) Size() int { return len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data) }

// MaxMessage bounds the size of a message, header and data, in bytes.
const MaxMessage = 64 << 20

// Handler receives the events of a connection, in one goroutine.
type Handler struct {
	Message func(Message) error // an error ends the connection
	Idle    func()              // all received messages were handled; may be nil
	Over    func(error)         // the connection ended; no more calls follow
}

// read reads until the connection ends, and returns why. It calls ping for each PING of the server.
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
			err = fmt.Errorf("the server answered %s", bytes.TrimSpace(line))
		}
		if err != nil {
			return err
		}
		if h.Idle != nil && r.in.Buffered() == 0 {
			h.Idle()
		}
	}
}

// message reads the rest of a message after its first line,
//
//	MSG <subject> <sid> [<reply>] <size>
//	HMSG <subject> <sid> [<reply>] <size of the header> <size>
//
// which is overwritten by that.
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
		return Message{}, fmt.Errorf("unexpected line of the server: %q", line)
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

// split returns the words of a line. If there are more than any line may have, n is too large.
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
