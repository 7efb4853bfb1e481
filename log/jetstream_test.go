package log_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
)

func TestMain(m *testing.M) {
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
	if !s.ReadyForConnections(20 * time.Second) {
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
	logtest.Run(t, func(t *testing.T) *log.Log {
		s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
		return mustOpen(t, mustDial(t, s), log.Config{Reads: mustDial(t, s)})
	})
}
