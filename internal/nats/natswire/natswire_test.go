package natswire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzRead checks that reading returns the written messages, and for any other bytes an error or a message.
func FuzzRead(f *testing.F) {
	f.Add("a.b", "$JS.ACK.S.c.1.2.3.4.5", "NATS/1.0\r\nce-id: 1\r\n\r\n", []byte("data"), []byte("HMSG a 1 3 2\r\n"))
	f.Add("a", "", "", []byte{}, []byte("MSG a 1 99999999999999999999\r\n"))
	f.Add("a", "r", "", []byte("x\r\nMSG"), []byte("-ERR 'x'\r\nPING\r\nMSG a 1 r 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, subject, reply, header string, data, raw []byte) {
		pings, idle := 0, 0
		read := func(b []byte) (list []Message, err error) {
			err = newReader(bytes.NewReader(b), 64).read(Handler{Message: func(m Message) error {
				m.Subject, m.Reply = bytes.Clone(m.Subject), bytes.Clone(m.Reply)
				list = append(list, m)
				return nil
			}, Idle: func() { idle++ }}, func() { pings++ })
			return list, err
		}
		if _, err := read(raw); err == nil {
			t.Fatal("Read ended without an error")
		}
		word := func(s string) bool {
			return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
		}
		if subject == "" || !word(subject) || !word(reply) || len(subject)+len(reply) > 30 {
			return
		}
		line := fmt.Sprintf("MSG %s 1 %s %d\r\n", subject, reply, len(data))
		if header != "" {
			line = fmt.Sprintf("HMSG %s 1 %s %d %d\r\n%s", subject, reply, len(header), len(header)+len(data), header)
		}
		pings, idle = 0, 0
		list, err := read([]byte(line + string(data) + "\r\nPING\r\n" + line + string(data) + "\r\n"))
		if err != io.EOF || len(list) != 2 || pings != 1 || idle == 0 {
			t.Fatalf("got %d messages, %d pings and %d idle calls, error %v", len(list), pings, idle, err)
		}
		for _, m := range list {
			if string(m.Subject) != subject || string(m.Reply) != reply || string(m.Header) != header || !bytes.Equal(m.Data, data) || m.Size() != len(subject)+len(reply)+len(header)+len(data) {
				t.Fatalf("got the message %+v", m)
			}
		}
	})
}

// Dial returns an error if the server refuses, hangs up or is silent, and waits for it no longer than its timeout.
func TestDial(t *testing.T) {
	for name, c := range map[string]struct{ says, want string }{
		"agrees":   {"INFO {}\r\nPING\r\nPONG\r\n", ""},
		"refuses":  {"INFO {}\r\n-ERR 'Authorization Violation'\r\n", "the server answered 'Authorization Violation'"},
		"hangs up": {"INFO {}\r\n", "EOF|closed pipe"},
		"is slow":  {"", "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			go io.Copy(io.Discard, there)
			go func() {
				io.WriteString(there, c.says)
				if name == "hangs up" {
					there.Close()
				}
			}()
			defer there.Close()
			conn, err := Dial(here, Hello{Name: "t", Wait: 200 * time.Millisecond, Buffer: 1 << 10}, Handler{Over: func(error) {}})
			if err == nil {
				conn.Close()
			}
			said := fmt.Sprint(err)
			if (err == nil) != (c.want == "") || err != nil && !slices.ContainsFunc(strings.Split(c.want, "|"), func(want string) bool { return strings.Contains(said, want) }) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Messages leave in the order of their publication, in the protocol's form, also if nobody pushes before the next
// message. An answer has the number of its message. The end of the connection is reported once, and later publications
// are refused.
func TestConn(t *testing.T) {
	numbers, over := make(chan uint64, 1), make(chan error, 2)
	c, there, inbox := mustAgree(t, Handler{
		Message: func(m Message) error { n, err := m.Number(); numbers <- n; return err },
		Over:    func(err error) { over <- err },
	})
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(there, got); err != nil || string(got) != want {
			t.Errorf("the server read %q, want %q, error %v", got, want, err)
		}
	}
	if err := c.Publish(Publication{Subject: "a.b", Extra: []Field{{"Id", "1"}}, Header: []byte("ce-id: x\r\n"), Data: []byte("data")}); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(Publication{Subject: "c", Number: 7, Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	go c.Push()
	expect("HPUB a.b 29 33\r\nNATS/1.0\r\nId: 1\r\nce-id: x\r\n\r\ndata\r\nPUB c " + c.Answers(7) + " 2\r\n{}\r\n")
	io.WriteString(there, "PING\r\n")
	expect("PONG\r\n")
	io.WriteString(there, "MSG "+inbox+".7 1 2\r\nok\r\n")
	if n := <-numbers; n != 7 || c.Answers(7) != inbox+".7" {
		t.Errorf("the answer has the number %d, the reply subject is %s", n, c.Answers(7))
	}
	there.Close()
	if err := <-over; err == nil || c.Publish(Publication{Subject: "d"}) == nil {
		t.Errorf("publish after the end: %v", err)
	}
	c.Kick()
	c.Close()
	if len(over) > 0 {
		t.Errorf("the end was reported again: %v", <-over)
	}
}

// mustAgree dials a server that accepts everything, and returns the server's side of the connection and the inbox.
func mustAgree(t *testing.T, h Handler) (c *Conn, there net.Conn, inbox string) {
	t.Helper()
	here, there := net.Pipe()
	agreed := make(chan string)
	go func() {
		in := bufio.NewReader(there)
		io.WriteString(there, "INFO {}\r\n")
		in.ReadString('\n')
		sub, _ := in.ReadString('\n')
		in.ReadString('\n')
		io.WriteString(there, "PONG\r\n")
		agreed <- strings.TrimSuffix(strings.Fields(sub)[1], ".*")
	}()
	c, err := Dial(here, Hello{Name: "t", Wait: 5 * time.Second, Buffer: 1 << 10}, h)
	if err != nil {
		t.Fatal(err)
	}
	return c, there, <-agreed
}

// The connection does not copy large messages, and keeps no buffers of their size.
func TestLargeIsNotCopied(t *testing.T) {
	c, there, _ := mustAgree(t, Handler{Over: func(error) {}})
	defer c.Close()
	read := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, there)
		read <- n
	}()
	data := make([]byte, 8<<20)
	const times = 8
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if err := c.Publish(Publication{Subject: "a", Header: []byte("ce-id: x\r\n"), Data: data}); err != nil {
			t.Fatal(err)
		}
		c.Push()
	}
	runtime.ReadMemStats(&after)
	if perByte := float64(after.TotalAlloc-before.TotalAlloc) / times / float64(len(data)); perByte > 0.1 {
		t.Errorf("%.2f bytes were allocated for each byte of a large message", perByte)
	}
	there.Close()
	if n := <-read; n < times*int64(len(data)) {
		t.Errorf("the server read %d bytes", n)
	}
}
