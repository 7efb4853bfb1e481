package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/schedule"
	"github.com/tallylog/tally/log"
)

// meddling makes in-process connections on which a test changes the bytes in both directions. The length stays.
type meddling struct {
	*server.Server
	arrives, sends func([]byte)
}

func (m *meddling) InProcessConn() (net.Conn, error) {
	conn, err := m.Server.InProcessConn()
	return meddledConn{conn, m}, err
}

type meddledConn struct {
	net.Conn
	by *meddling
}

func (c meddledConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.by.arrives != nil {
		c.by.arrives(p[:n])
	}
	return n, err
}

func (c meddledConn) Write(p []byte) (int, error) {
	if c.by.sends != nil {
		p = slices.Clone(p)
		c.by.sends(p)
	}
	return c.Conn.Write(p)
}

func (m *meddling) dial(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// garble returns a function that changes the first answer to a publication behind a number of others.
func garble(points *schedule.Points, how func(answer []byte)) (arrives func([]byte)) {
	var mu sync.Mutex
	var due bool
	points.Do(func() { due = true })
	return func(text []byte) {
		mu.Lock()
		defer mu.Unlock()
		for from := 0; ; { // several answers may arrive at once
			at := bytes.Index(text[from:], []byte(`{"stream":"TALLY_1"`))
			if at < 0 || !bytes.Contains(text[from+at:], []byte(`"seq":`)) {
				return
			}
			from += at + 1
			if points.Reached("answer"); due {
				due = false
				how(text[from-1:])
			}
		}
	}
}

// after changes the byte behind a name, and the sequence: the answer is one to another publication.
func after(name string, to byte) func([]byte) {
	return func(answer []byte) {
		if i := bytes.Index(answer, []byte(name)); i >= 0 {
			answer[i+len(name)] = to
			answer[bytes.Index(answer, []byte(`"seq":`))+len(`"seq":`)] ^= 1
		}
	}
}

// An answer that does not fit says nothing about the append: the producer asks again, and learns the outcome.
func TestAnswersThatDoNotFit(t *testing.T) {
	for name, how := range map[string]func([]byte){
		"sequence 0":      func(b []byte) { zero(b) },
		"another batch":   after(`"batch":"`, '!'),
		"another count":   after(`"count":`, '9'),
		"no JSON":         after(`{"stream`, '!'),
		"not even a name": func(b []byte) { b[0] = '!' },
	} {
		for _, owner := range []bool{false, true} {
			t.Run(fmt.Sprintf("net I3 %s, owner %v", name, owner), func(t *testing.T) {
				schedule.Each(t, func(t *testing.T, points *schedule.Points) { playGarbled(t, points, how, owner) })
			})
		}
	}
}

// zero makes the digits of the sequence zeros.
func zero(answer []byte) {
	i := bytes.Index(answer, []byte(`"seq":`)) + len(`"seq":`)
	for ; i < len(answer) && answer[i] >= '0' && answer[i] <= '9'; i++ {
		answer[i] = '0'
	}
}

func playGarbled(t *testing.T, points *schedule.Points, how func([]byte), owner bool) {
	s := mustServe(t, t.TempDir(), nil)
	m := &meddling{Server: s, arrives: garble(points, how)}
	c := log.Config{AckWait: testkit.Patience(5 * time.Second), Host: log.Host{Reads: mustDial(t, s)}}
	if owner {
		conn, err := m.InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		c.Host.Owner, c.Host.Sync, c.Host.Appends = true, func(string) error { return nil }, log.Login{Conn: conn}
	}
	l := mustOpen(t, m.dial(t), c)
	a, b := events.Session("", "a"), events.Session("", "b")
	places := make(map[string]events.Offset)
	// insist appends until the answer fits, and notes where the events are.
	insist := func(do func() ([]log.Ack, error), parts ...[]events.Event) {
		t.Helper()
		acks, err := do()
		if errors.Is(err, log.ErrUnknown) {
			acks, err = do()
		}
		if err != nil {
			t.Fatalf("%s: %v", parts[0][0].ID, err)
		}
		for i, ack := range acks {
			if n := len(parts[i]); ack.Last < ack.First || !owner && int(ack.Last-ack.First) != n-1 {
				t.Errorf("%s: %+v for %d events", parts[i][0].ID, ack, n)
			}
			places[parts[i][0].ID], places[parts[i][len(parts[i])-1].ID] = ack.First, ack.Last
		}
	}
	one := func(expect log.Expect, evs ...events.Event) {
		t.Helper()
		insist(func() ([]log.Ack, error) {
			ack, err := l.Append(t.Context(), a, expect, evs...)
			return []log.Ack{ack}, err
		}, evs)
	}
	one(log.Any, note("any", "x"))
	one(log.At(places["any"]), note("at", "x"))
	one(log.Any, note("batch1", "x"), note("batch2", "x"), note("batch3", "x"))
	left, right := []events.Event{note("left1", "x"), note("left2", "x")}, []events.Event{note("right1", "x")}
	insist(func() ([]log.Ack, error) {
		return l.AppendAll(t.Context(), log.Part{Subject: a, Expect: log.At(places["batch3"]), Events: left}, log.Part{Subject: b, Events: right})
	}, left, right)
	one(log.Since(places["left2"], "com.example.note"), note("since", "x"))
	have := make(map[string]events.Offset)
	for rec, err := range l.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if have[rec.ID] != 0 {
			t.Errorf("%s is stored twice", rec.ID)
		}
		have[rec.ID] = rec.Offset
	}
	for id, at := range places {
		if have[id] != at {
			t.Errorf("%s was acknowledged at %v, and is at %v", id, at, have[id])
		}
	}
}

// A process that only follows through the owner is told of each new segment, and asks for nothing.
func TestFollowerHearsOfASegment(t *testing.T) {
	t.Run("net I3 a follower reads on in the next segment", func(t *testing.T) {
		s := mustServe(t, t.TempDir(), nil)
		owner := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 4 << 10}}})
		svc, err := log.Serve(mustDial(t, s), owner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { svc.Close() })
		sub, nc := events.Session("", "s"), mustDial(t, s)
		mustAppend(t, owner, sub, note("0", "x"))
		attached := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Via: true, Reads: mustDial(t, s)}})
		idle := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Via: true, Reads: mustDial(t, s)}})
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
		defer cancel()
		got := make(chan string)
		go func() {
			defer close(got)
			for rec, err := range attached.Follow(ctx, events.Range{Subject: sub}) {
				if err != nil {
					t.Error(err)
					return
				}
				got <- rec.ID
			}
		}()
		for i := range 40 {
			if id, more := <-got; !more || id != fmt.Sprint(i) {
				t.Fatalf("followed %q, want %d: it had %v for it", id, i, testkit.Patience(time.Minute))
			}
			mustAppend(t, owner, sub, note(fmt.Sprint(i+1), strings.Repeat("x", 500)))
			if i%8 == 7 {
				mustSeal(t, nc, 1)
				for have, want := 0, len(streams(t, nc)); have < want; have = log.KnownSegments(idle) {
					if ctx.Err() != nil {
						t.Fatalf("after %v, a process that asks nothing knows %d segments, want %d", testkit.Patience(time.Minute), have, want)
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
		cancel()
		for range got {
		}
	})
}

// streams returns the log's streams as the server has them, in order.
func streams(t *testing.T, nc *nats.Conn) []*jetstream.StreamInfo {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var list []*jetstream.StreamInfo
	for n := 1; ; n++ {
		stream, err := js.Stream(t.Context(), fmt.Sprint("TALLY_", n))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, stream.CachedInfo())
	}
}

// half returns which step of the change to the newest segment is not done.
func half(list []*jetstream.StreamInfo) string {
	for i, info := range list {
		last := i == len(list)-1
		switch takes := slices.Equal(info.Config.Subjects, []string{events.SubjectFilter}); {
		case last != takes:
			return fmt.Sprintf("%s takes events: %v", info.Config.Name, takes)
		case last == info.Config.Sealed:
			return fmt.Sprintf("%s is sealed: %v", info.Config.Name, info.Config.Sealed)
		}
	}
	return ""
}

// mustSeal waits until there are n segments or more, and every full one is sealed, by the server's word.
func mustSeal(t *testing.T, nc *nats.Conn, n int) {
	t.Helper()
	patience := testkit.Patience(time.Minute)
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		list := streams(t, nc)
		said := half(list)
		if said == "" && len(list) >= n {
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("after %v, there are %d of %d segments; %s", patience, len(list), n, said)
		}
	}
}

// rolling is an owner whose segments hold a few events.
type rolling struct {
	t      *testing.T
	l      *log.Log
	own    *nats.Conn // the test's
	left   chan struct{}
	stored int
}

// Write implements io.Writer for the log's own messages: a round of the segments' worker that failed is one.
func (r *rolling) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("left as they are")) {
		select {
		case r.left <- struct{}{}:
		default:
		}
	}
	return len(text), nil
}

func roll(t *testing.T, sync log.Sync, sends func([]byte)) *rolling {
	s := mustServe(t, t.TempDir(), nil)
	r := &rolling{t: t, own: mustDial(t, s), left: make(chan struct{}, 1)}
	m := &meddling{Server: s, sends: sends}
	r.l = mustOpen(t, mustDial(t, s), log.Config{Logger: slog.New(slog.NewTextHandler(r, nil)), Host: log.Host{Reads: m.dial(t), Owner: true, Sync: sync, Segments: log.Segments{Bytes: 4 << 10, Dir: t.TempDir()}}})
	return r
}

// event returns the next event, an eighth of a segment.
func (r *rolling) event() events.Event {
	r.stored++
	return note(fmt.Sprint(r.stored), strings.Repeat("x", 300))
}

// reach appends until there are n segments and the full ones are sealed.
func (r *rolling) reach(n int) {
	patience := testkit.Patience(time.Minute)
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(2 * time.Millisecond) {
		list := streams(r.t, r.own)
		if len(list) >= n && half(list) == "" {
			return
		}
		if r.stored < 200 {
			mustAppend(r.t, r.l, events.Session("", "s"), r.event())
		}
	}
	r.t.Fatalf("after %v and %d events, there are %d segments, want %d; %s", patience, r.stored, len(streams(r.t, r.own)), n, half(streams(r.t, r.own)))
}

// whole checks that every event is stored once.
func (r *rolling) whole() {
	n := 0
	for rec, err := range r.l.Read(r.t.Context(), events.Range{}) {
		if n++; err != nil || rec.ID != fmt.Sprint(n) {
			r.t.Fatalf("event %d is %q, %v", n, rec.ID, err)
		}
	}
	if n != r.stored {
		r.t.Errorf("there are %d events, want %d", n, r.stored)
	}
}

// divert makes the server refuse a request: it goes to a subject that nobody serves.
func divert(text []byte, verb string) {
	i := bytes.Index(text, []byte("$JS.API."+verb))
	text[i+len("$JS.API.")-2] = 'X'
}

// Segments begin, close and are sealed only while the state of the disk is known, and as the server's streams are, not as
// the process believes.
func TestStreamsChange(t *testing.T) {
	changes := []string{"STREAM.UPDATE.", "STREAM.CREATE.TALLY_2", "STREAM.CREATE.TALLY_3"}
	t.Run("net R2 a step that the server refuses once is done by the next round", func(t *testing.T) {
		schedule.Each(t, func(t *testing.T, points *schedule.Points) {
			due := false
			points.Do(func() { due = true })
			r := roll(t, func(string) error { return nil }, func(text []byte) {
				for _, verb := range changes {
					if !bytes.Contains(text, []byte("PUB $JS.API."+verb)) {
						continue
					}
					if points.Reached(verb); due {
						due = false
						divert(text, verb)
					}
				}
			})
			r.reach(2)
			r.reach(3)
			r.whole()
		})
	})
	t.Run("net R2 no segment begins when its sync fails", func(t *testing.T) {
		var d disk
		r := roll(t, d.sync, nil)
		mustAppend(t, r.l, events.Session("", "s"), r.event())
		d.fail(errors.New("input/output error"))
		for range 20 { // several segments, if they began
			if _, err := r.l.AppendBuffered(t.Context(), events.Session("", "s"), log.Any, r.event()); err != nil {
				r.stored--
				break
			}
		}
		r.unchanged(1)
		d.fail(nil)
		if err := r.l.Recover(t.Context(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		r.reach(2)
		r.whole()
	})
	t.Run("net R2 no segment is sealed after a sync that failed", func(t *testing.T) {
		var d disk
		var r *rolling
		closed, asked, failed := false, false, make(chan struct{})
		var armed atomic.Bool // the full segment may be sealed, and its round is the one in which a sync fails
		r = roll(t, d.sync, func(text []byte) {
			switch {
			case bytes.Contains(text, []byte("PUB $JS.API.STREAM.UPDATE.")):
				if closed && !asked {
					divert(text, "STREAM.UPDATE.")
				}
				closed = true
			case armed.Load() && !asked && bytes.Contains(text, []byte("PUB $JS.API.STREAM.INFO.TALLY_2")): // the next round begins
				asked = true
				select {
				case <-r.left: // of an earlier round
				default:
				}
				d.fail(errors.New("input/output error"))
				if _, err := r.l.Append(context.Background(), events.Session("", "t"), log.Any, note("", "x")); !errors.Is(err, log.ErrUnknown) {
					t.Errorf("an append whose sync failed: %v", err)
				}
				close(failed)
			}
		})
		for i := 0; len(streams(t, r.own)) < 2; i++ {
			mustAppend(t, r.l, events.Session("", "s"), r.event())
		}
		r.gaveUp() // the seal was refused
		armed.Store(true)
		if _, err := r.l.AppendBuffered(t.Context(), events.Session("", "s"), log.Any, r.event()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-failed:
		case <-time.After(testkit.Patience(time.Minute)):
			t.Fatal("no round has begun")
		}
		r.unchanged(2)
		d.fail(nil)
		if err := r.l.Recover(t.Context(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		r.reach(2)
	})
}

// gaveUp waits for a round of the worker that ended with an error.
func (r *rolling) gaveUp() {
	r.t.Helper()
	patience := testkit.Patience(time.Minute)
	select {
	case <-r.left:
	case <-time.After(patience):
		r.t.Errorf("for %v, no round has ended with an error", patience)
	}
}

// unchanged waits until the worker has given up, and checks that the streams are as they were.
func (r *rolling) unchanged(n int) {
	r.t.Helper()
	r.gaveUp()
	list := streams(r.t, r.own)
	if len(list) != n || n == 1 && half(list) != "" {
		r.t.Errorf("there are %d segments, want %d; %s", len(list), n, half(list))
	}
	for _, info := range list {
		if info.Config.Sealed {
			r.t.Errorf("%s is sealed", info.Config.Name)
		}
	}
}
