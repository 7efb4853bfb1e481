package natswire

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzRead holds messages as they are read to what was written, and to an error or a message
// whatever is there.
func FuzzRead(f *testing.F) {
	f.Add("a.b", "$JS.ACK.S.c.1.2.3.4.5", "NATS/1.0\r\nce-id: 1\r\n\r\n", []byte("data"), []byte("HMSG a 1 3 2\r\n"))
	f.Add("a", "", "", []byte{}, []byte("MSG a 1 99999999999999999999\r\n"))
	f.Add("a", "r", "", []byte("x\r\nMSG"), []byte("-ERR 'x'\r\nPING\r\nMSG a 1 r 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, subject, reply, header string, data, raw []byte) {
		pings, idle := 0, 0
		read := func(b []byte) (list []Message, err error) {
			err = NewReader(bytes.NewReader(b), 64).Read(Handler{Message: func(m Message) error {
				m.Subject, m.Reply = bytes.Clone(m.Subject), bytes.Clone(m.Reply)
				list = append(list, m)
				return nil
			}, Ping: func() error { pings++; return nil }, Idle: func() { idle++ }})
			return list, err
		}
		if _, err := read(raw); err == nil {
			t.Fatal("a reading that ended without an error")
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
			t.Fatalf("%d messages, %d pings, idle %d times, %v", len(list), pings, idle, err)
		}
		for _, m := range list {
			if string(m.Subject) != subject || string(m.Reply) != reply || string(m.Header) != header || !bytes.Equal(m.Data, data) || m.Size() != len(subject)+len(reply)+len(header)+len(data) {
				t.Fatalf("read %+v", m)
			}
		}
	})
}

// A server that refuses, hangs up, or says nothing is an error, and not waited for longer
// than was said.
func TestDial(t *testing.T) {
	for name, c := range map[string]struct{ says, want string }{
		"agrees":   {"INFO {}\r\nPING\r\nPONG\r\n", ""},
		"refuses":  {"INFO {}\r\n-ERR 'Authorization Violation'\r\n", "the server says 'Authorization Violation'"},
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
			_, err := Dial(here, Hello{Name: "t", Inbox: "_INBOX.x", Wait: 200 * time.Millisecond, Buffer: 1 << 10})
			said := fmt.Sprint(err)
			if (err == nil) != (c.want == "") || err != nil && !slices.ContainsFunc(strings.Split(c.want, "|"), func(want string) bool { return strings.Contains(said, want) }) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
