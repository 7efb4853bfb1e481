package log_test

import (
	"fmt"
	"iter"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
)

func TestMain(m *testing.M) {
	testkit.Checks(200)
	goleak.VerifyTestMain(m)
}

// mustServe starts a server on a directory.
func mustServe(t testing.TB, dir string, change func(*server.Options)) *server.Server {
	t.Helper()
	opts := &server.Options{
		DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, MaxPayload: 16 << 20, DisableJetStreamBanner: true,
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: -1},
	}
	if change != nil {
		change(opts)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { mustStop(s) })
	return s
}

func mustStop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func mustDial(t testing.TB, s *server.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func mustOpen(t testing.TB, nc *nats.Conn, c log.Config) *log.Log {
	t.Helper()
	l, err := log.Open(t.Context(), nc, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestJetStream(t *testing.T) {
	testkit.OnlyFull(t, "TestCommitterKeepsThePromises, and TestOwnerKeepsThePromises of package embedded")
	logtest.Run(t, func(t *testing.T) *log.Log {
		s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
		return mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Reads: mustDial(t, s)}})
	})
}

// Reads and follows return records that exceed the size of one request, between small ones.
func TestLargeRecords(t *testing.T) {
	s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
	l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Reads: mustDial(t, s)}})
	sub := events.Session("", "s")
	sizes := []int{10, 3 << 20, 3 << 20, 10, events.MaxData, 3 << 20, 10, 1 << 20, 1 << 20, 1 << 20, 3 << 20}
	for i, size := range sizes {
		e := note(fmt.Sprintf("e%d", i), "")
		e.Data = []byte(`"` + strings.Repeat("x", size-2) + `"`)
		mustAppend(t, l, sub, e)
	}
	for name, read := range map[string]iter.Seq2[events.Record, error]{
		"read": l.Read(t.Context(), events.Range{}), "session": l.Read(t.Context(), events.Range{Subject: sub}), "follow": l.Follow(t.Context(), events.Range{Limit: len(sizes)}),
	} {
		var got []int
		for rec, err := range read {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, len(rec.Data))
		}
		if !slices.Equal(got, sizes) {
			t.Errorf("%s: got records of %d bytes, want %d", name, got, sizes)
		}
	}
}

// heldConn is a connection that delivers nothing while a test holds it.
type heldConn struct {
	net.Conn
	held *sync.RWMutex
}

func (c heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.held.RLock()
	defer c.held.RUnlock()
	return n, err
}

// holding makes in-process connections that a test can hold.
type holding struct {
	*server.Server
	held sync.RWMutex
}

func (h *holding) InProcessConn() (net.Conn, error) {
	nc, err := h.Server.InProcessConn()
	return heldConn{nc, &h.held}, err
}

// An append is sent again if the answer is late. The server refuses the second message if the append expects an
// offset, as the first message is stored by then. The append finds its events and succeeds.
func TestLateAnswer(t *testing.T) {
	for name, n := range map[string]int{"one event": 1, "several events": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &holding{Server: mustServe(t, filepath.Join(t.TempDir(), "js"), nil)}
			nc, err := nats.Connect("", nats.InProcessServer(h))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			l := mustOpen(t, nc, log.Config{Host: log.Host{Reads: mustDial(t, h.Server)}})
			sub := events.Session("", "s")
			mustAppend(t, l, sub, note("first", ""))
			var evs []events.Event
			for i := range n {
				evs = append(evs, note(fmt.Sprintf("e%d", i), ""))
			}
			h.held.Lock()
			time.AfterFunc(2500*time.Millisecond, h.held.Unlock) // a message is sent again after one second, a batch after two
			ack, err := l.Append(t.Context(), sub, log.At(1), evs...)
			if err != nil || ack.First != 2 || ack.Last != events.Offset(1+n) {
				t.Errorf("got %+v, %v, want offsets 2 to %d", ack, err, 1+n)
			}
		})
	}
}
