package log_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// deaf makes connections to a server that stops receiving at a certain request, like a server that is being stopped.
type deaf struct {
	server *server.Server

	mu    sync.Mutex // guards the fields below
	to    []byte     // beginning of the request after which the server receives nothing; nil: it receives everything
	asked chan struct{}
	conns []net.Conn
	dead  bool
}

func (d *deaf) dial(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(d), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// InProcessConn implements nats.InProcessConnProvider.
func (d *deaf) InProcessConn() (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, errors.New("the server is dead")
	}
	conn, err := d.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	d.conns = append(d.conns, conn)
	return deafConn{conn, d}, nil
}

// turn makes the server receive nothing from a request to a subject on. The returned channel is closed at the request.
func (d *deaf) turn(to string) (asked <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to, d.asked = []byte("PUB "+to), make(chan struct{})
	return d.asked
}

// hears reports whether the server receives a text.
func (d *deaf) hears(text []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to == nil {
		return true
	}
	select {
	case <-d.asked:
		return false
	default:
	}
	if bytes.Contains(text, d.to) {
		close(d.asked)
		return false
	}
	return true
}

// die closes the connections and refuses new ones.
func (d *deaf) die() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	for _, conn := range d.conns {
		conn.Close()
	}
}

type deafConn struct {
	net.Conn
	d *deaf
}

func (c deafConn) Write(text []byte) (int, error) {
	if !c.d.hears(text) {
		return len(text), nil
	}
	return c.Conn.Write(text)
}

// call is a call of a log's method.
type call func(context.Context, *log.Log) error

// last returns the last error of a sequence.
func last[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
	}
	return err
}

// If the owner of a store dies, no call of an attached process waits for an answer that cannot come any more.
func TestNothingWaitsForADeadOwner(t *testing.T) {
	log.SetAway(t, 100*time.Hour)
	sub := events.Session("", "s")
	for name, c := range map[string]struct {
		asks []string
		do   call
	}{
		"follow": {[]string{"tally.api.v1.watermark", "$JS.API.STREAM.INFO.", "$JS.API.CONSUMER.CREATE.", "$JS.API.CONSUMER.MSG.NEXT."},
			func(ctx context.Context, l *log.Log) error { return last(l.Follow(ctx, events.Range{After: 1})) }},
		"read": {[]string{"tally.api.v1.watermark", "$JS.API.STREAM.INFO.", "$JS.API.CONSUMER.CREATE.", "$JS.API.CONSUMER.MSG.NEXT."},
			func(ctx context.Context, l *log.Log) error { return last(l.Read(ctx, events.Range{})) }},
		"last": {[]string{"$JS.API.STREAM.INFO.", "$JS.API.DIRECT.GET."},
			func(ctx context.Context, l *log.Log) error { _, err := l.Last(ctx, sub); return err }},
		"record": {[]string{"$JS.API.DIRECT.GET."},
			func(ctx context.Context, l *log.Log) error { _, err := l.Record(ctx, 1); return err }},
		"head": {[]string{"$JS.API.STREAM.INFO."},
			func(ctx context.Context, l *log.Log) error { _, err := l.Head(ctx); return err }},
		"subjects": {[]string{"$JS.API.STREAM.INFO."},
			func(ctx context.Context, l *log.Log) error { return last(l.Subjects(ctx, "", "")) }},
		"append": {[]string{"tally.api.v1.append"},
			func(ctx context.Context, l *log.Log) error {
				_, err := l.Append(ctx, sub, log.Any, someTurn("e2"))
				return err
			}},
	} {
		for _, to := range c.asks {
			t.Run(name+" "+to, func(t *testing.T) { diesWhenAsked(t, to, c.do) })
		}
	}
}

// diesWhenAsked lets the owner die at a request to a subject that a call makes. The call must return an error.
func diesWhenAsked(t *testing.T, to string, do call) {
	s := mustServeOwner(t)
	d := &deaf{server: s}
	attached := mustOpen(t, d.dial(t), log.Config{Host: log.Host{Via: true, Reads: d.dial(t)}, AckWait: 100 * time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute)) // enough for any machine
	defer cancel()
	asked, over := d.turn(to), make(chan error, 1)
	go func() { over <- do(ctx, attached) }()
	select {
	case <-asked:
	case err := <-over:
		t.Fatalf("the call ended before it made its request: %v", err)
	}
	d.die()
	err := <-over
	if unavailable := errors.Is(err, log.ErrUnavailable) && strings.Contains(err.Error(), "open the store again"); !unavailable && !errors.Is(err, log.ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown, or ErrUnavailable with advice to open the store again", err)
	}
}

// mustServeOwner starts a server with the service of a store's owner. The store has one record.
func mustServeOwner(t *testing.T) *server.Server {
	s := mustServe(t, t.TempDir(), nil)
	owner := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
	svc, err := log.Serve(mustDial(t, s), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	mustAppend(t, owner, events.Session("", "s"), someTurn("e1"))
	return s
}

// If the owner dies while a process attaches to it, Open returns ErrUnavailable without waiting.
func TestOpenDoesNotWaitForADeadOwner(t *testing.T) {
	log.SetAway(t, 100*time.Hour)
	for _, to := range []string{"$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO."} {
		d := &deaf{server: mustServeOwner(t)}
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
		defer cancel()
		asked := d.turn(to)
		go func() { <-asked; d.die() }()
		if l, err := log.Open(ctx, d.dial(t), log.Config{Host: log.Host{Via: true, Reads: d.dial(t)}}); l != nil || !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", to, err)
		}
	}
}

// If the owner lives but does not answer, as on an overloaded machine, it is unavailable after a while, even for
// callers without a deadline.
func TestSilentOwner(t *testing.T) {
	sub := events.Session("", "s")
	for to, do := range map[string]call{
		"$JS.API.STREAM.INFO.": func(ctx context.Context, l *log.Log) error { _, err := l.Head(ctx); return err },
		"$JS.API.DIRECT.GET.":  func(ctx context.Context, l *log.Log) error { _, err := l.Record(ctx, 1); return err },
		"$JS.API.CONSUMER.CREATE.": func(ctx context.Context, l *log.Log) error {
			return last(l.Read(ctx, events.Range{Subject: sub, Buffered: true}))
		},
	} {
		t.Run(to, func(t *testing.T) {
			d := &deaf{server: mustServeOwner(t)}
			attached := mustOpen(t, d.dial(t), log.Config{Host: log.Host{Via: true, Reads: d.dial(t)}})
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute)) // enough for any machine
			defer cancel()
			log.SetAway(t, 20*time.Millisecond) // for the call alone: a busy machine may take longer to open
			d.turn(to)
			if err := do(ctx, attached); !errors.Is(err, log.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
}
