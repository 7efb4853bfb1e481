package log_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// outcome is an item that a read yields.
type outcome struct {
	Record events.Record
	Err    string
}

func mustReadAll(t *testing.T, l *log.Log) []outcome {
	t.Helper()
	return mustReadRange(t, l, events.Range{})
}

func mustReadRange(t *testing.T, l *log.Log, rg events.Range) []outcome {
	t.Helper()
	var list []outcome
	for rec, err := range l.Read(t.Context(), rg) {
		list = append(list, outcome{rec, fmt.Sprint(err)})
	}
	return list
}

// scansOf returns a Host.Scans with in-process connections to the server, each wrapped by change.
func scansOf(s *server.Server, change func(net.Conn) net.Conn) func() (log.Login, error) {
	return func() (log.Login, error) {
		conn, err := s.InProcessConn()
		if err != nil {
			return log.Login{}, err
		}
		return log.Login{Conn: change(conn)}, nil
	}
}

// fillOddly stores events, and between them messages that other programs could publish: events with headers in other
// spellings, and messages with repeated, foreign or no headers, which are not events.
func fillOddly(t *testing.T, nc *nats.Conn, l *log.Log, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	odd := []nats.Header{
		{}, {"ce-id": {"a", "b"}}, {"CE-Id": {"1"}, "ce-SpecVersion": {"1.0"}, "ce-source": {"urn:x"}, "ce-type": {"t"}},
		{"ce-id": {"x%20y"}, "ce-specversion": {"1.0"}, "ce-source": {"urn:x"}, "ce-type": {"t"}, "ce-actor": {"ada"}, "Other": {"", "two"}},
		{"Content-Type": {"application/cloudevents+json"}},
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	var pending []*log.Pending
	for i := range n {
		sub := events.Session("", fmt.Sprint("s", r.IntN(20)))
		if i%7 != 0 {
			pending = append(pending, l.AppendAsync(t.Context(), sub, log.Any, note("", strings.Repeat("x", r.IntN(100)))))
			continue
		}
		data := []byte(fmt.Sprintf(`{"specversion":"1.0","id":"i%d","source":"urn:x","type":"t"}`, i))
		if _, err := js.PublishMsg(&nats.Msg{Subject: sub.NATS(), Header: odd[r.IntN(len(odd))], Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A read over its own connection returns the same as one over the client's, even if the connection is lost many times.
func TestScans(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	nc := mustDial(t, s)
	plain := mustOpen(t, nc, log.Config{})
	fillOddly(t, nc, plain, 2000)
	want := mustReadAll(t, plain)
	for name, change := range map[string]func(net.Conn) net.Conn{
		"sound": func(c net.Conn) net.Conn { return c },
		"lost":  func(c net.Conn) net.Conn { return &shortLived{c, 100_000} },
	} {
		t.Run(name, func(t *testing.T) {
			made := 0
			scans := scansOf(s, func(c net.Conn) net.Conn { made++; return change(c) })
			got := mustReadAll(t, mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Scans: scans}}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("read (-client connection +own connection):\n%s", diff)
			}
			if lost := name == "lost"; made == 0 || lost && made < 3 {
				t.Errorf("%d connections were made, want 1, or at least 3 if they are lost", made)
			}
		})
	}
}

// shortLived is a connection that is lost after a number of bytes.
type shortLived struct {
	net.Conn
	left int
}

func (c *shortLived) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
	}
	n, err := c.Conn.Read(b)
	c.left -= n
	return n, err
}

// If the caller ends a read early, its connection and goroutines end too. TestMain checks for goroutines.
func TestScanLeftEarly(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	nc := mustDial(t, s)
	plain := mustOpen(t, nc, log.Config{})
	fillOddly(t, nc, plain, 1000)
	l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Scans: scansOf(s, func(c net.Conn) net.Conn { return c })}})
	for range l.Read(t.Context(), events.Range{}) {
		break
	}
	deadline := time.Now().Add(testkit.Patience(time.Minute))
	for s.NumClients() > 2 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := s.NumClients(); n > 2 {
		t.Errorf("the server has %d connections, want those of two logs", n)
	}
}
