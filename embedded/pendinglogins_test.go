package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// peer is a connection from a machine.
type peer struct {
	net.Conn
	from   net.IP
	closed bool
}

func (p *peer) RemoteAddr() net.Addr { return &net.TCPAddr{IP: p.from} }
func (p *peer) Close() error         { p.closed = true; return nil }

func peerAt(ip string) *peer { return &peer{from: net.ParseIP(ip)} }

// If too many connections wait, a new one closes the oldest of its own network. A single connection stays, and each
// has minLogin to log in.
func TestPendingLogins(t *testing.T) {
	t.Run("B-03 a crowd pushes out its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, never := newPendingLogins(3), make(chan struct{})
			alone, first, second := peerAt("192.0.2.1"), peerAt("2001:db8::1"), peerAt("2001:db8::2:1") // first and second are of one network
			for _, p := range []*peer{alone, first, second} {
				l.enter(p, never)
			}
			began := time.Now()
			third := peerAt("2001:db8::3")
			l.enter(third, never)
			if took := time.Since(began); took != minLogin {
				t.Errorf("the first was closed after %v, want minLogin", took)
			}
			if !first.closed || second.closed || alone.closed {
				t.Errorf("got closed: first %v, second %v, alone %v", first.closed, second.closed, alone.closed)
			}
			if !l.leave(first) || l.leave(alone) {
				t.Error("leave reports the wrong connection as closed")
			}
			began = time.Now()
			l.enter(peerAt("2001:db8::4"), never)
			if time.Since(began) != 0 || second.closed {
				t.Error("a free place: got a wait or a closed connection")
			}
			l.enter(peerAt("2001:db8::5"), never)
			if time.Since(began) != 0 || !second.closed {
				t.Error("a full list: the second was not closed at once")
			}
			over := make(chan struct{})
			go func() { time.Sleep(time.Millisecond); l.leave(third) }()
			l.enter(peerAt("2001:db8::6"), over)
			if took := time.Since(began); took != time.Millisecond || third.closed {
				t.Errorf("after a leave: got a wait of %v", took)
			}
			close(over)
			l.enter(peerAt("2001:db8::7"), over) // a closed proxy does not wait
		})
	})
}

// crowded is a listener that has no file descriptors for a while.
type crowded struct {
	net.Listener
	errors int
}

func (c *crowded) Accept() (net.Conn, error) {
	if c.errors > 0 {
		c.errors--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return nil, net.ErrClosed
}

// After the system had no file descriptor left, a proxy continues, with pauses.
func TestProxyWithoutDescriptors(t *testing.T) {
	t.Run("B-03 no descriptor is left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			said := new(bytes.Buffer)
			l := &crowded{errors: 10}
			d := &proxy{listener: l, rejected: newRejections("d", slog.New(slog.NewTextHandler(said, nil))), pending: newPendingLogins(1), open: t.Context()}
			began := time.Now()
			d.run()
			if l.errors != 0 {
				t.Fatalf("the proxy ended with %d errors to come", l.errors)
			}
			if took := time.Since(began); took < time.Second || took > 10*maxPause {
				t.Errorf("ten errors took %v", took)
			}
			_ = d.rejected.close()
			if got := said.String(); strings.Count(got, "\n") > 2 || !strings.Contains(got, `"no free file descriptor"=`) {
				t.Errorf("got the log %s", got)
			}
		})
	})
}

// However many strangers connect, the log gets one line a minute, with their number.
func TestRejectionsInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(bytes.Buffer)
		s := newRejections("d", slog.New(slog.NewTextHandler(said, nil)))
		for range 600 {
			s.count("TLS handshake failed")
			time.Sleep(time.Second / 2)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s.count("late")
		total := 0
		for line := range strings.Lines(said.String()) {
			_, after, _ := strings.Cut(line, `failed"=`)
			n := 0
			if _, err := fmt.Sscan(after, &n); err != nil {
				t.Fatal(errors.Join(err, errors.New(line)))
			}
			total += n
		}
		if lines := strings.Count(said.String(), "\n"); total != 600 || lines > 7 {
			t.Errorf("got %d connections in %d lines", total, lines)
		}
	})
}

// Connections leave the descriptors that the store needs.
func TestBounds(t *testing.T) {
	for _, c := range []struct{ descriptors, proxies, least, most int }{{64, 1, 12, 24}, {64, 2, 12, 24}, {128, 2, 32, 64}, {256, 2, 64, 128}, {1024, 1, 256, 512}, {1 << 20, 2, 8192, maxOpen}} {
		b := boundsOf(c.descriptors, c.proxies)
		if all := c.proxies * (b.within + b.before); all < c.least || all > c.most || b.before < 2 || b.before > b.within {
			t.Errorf("%+v: got %+v, %d in all", c, b, all)
		}
	}
}

// Each rejected connection is counted in the log once, at the latest when the counts are closed, in at most one line a
// minute.
func TestRejectionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		r := newRejections("dir", slog.New(slog.NewTextHandler(&said, nil)))
		want := 0
		for _, pause := range []time.Duration{0, 0, time.Second, 90 * time.Second, 0, 10 * time.Minute, 30 * time.Second, 30 * time.Second, 5 * time.Second} {
			time.Sleep(pause)
			r.count("login")
			want++
		}
		time.Sleep(rejectionInterval)
		synctest.Wait()
		logged := 0
		for line := range strings.Lines(said.String()) {
			var n int
			_, count, _ := strings.Cut(line, "login=")
			if _, err := fmt.Sscan(count, &n); err != nil {
				t.Fatal(err)
			}
			logged += n
		}
		if logged != want {
			t.Errorf("got %d of %d before the close: %s", logged, want, said.String())
		}
		r.count("login")
		want++
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		got, before := 0, time.Time{}
		for line := range strings.Lines(said.String()) {
			var at string
			var n int
			if _, err := fmt.Sscanf(line, "time=%s level=WARN msg=\"connections were rejected\" dir=dir login=%d\n", &at, &n); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			when, err := time.Parse(time.RFC3339, at)
			if err != nil {
				t.Fatal(err)
			}
			if isLast := got+n == want; when.Sub(before) < rejectionInterval && !isLast {
				t.Errorf("%s: less than a minute after the line before", line)
			}
			got, before = got+n, when
		}
		if got != want {
			t.Errorf("%d of %d rejections were logged: %s", got, want, said.String())
		}
	})
}
