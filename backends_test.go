package tally_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
)

// eachBackend runs a test against every backend, chosen by a configuration file
// alone: in memory, on a directory of this machine, on somebody else's server.
func eachBackend(t *testing.T, test func(t *testing.T, st *tally.Store)) {
	t.Helper()
	for _, backend := range []string{"memory", "local", "nats"} {
		t.Run(backend, func(t *testing.T) { test(t, openBackend(t, backend)) })
	}
}

// openBackend opens a new and empty store, closed with the test.
func openBackend(t testing.TB, backend string) *tally.Store {
	t.Helper()
	dir := t.TempDir()
	text := map[string]string{
		"memory": "[store]\nbackend = \"memory\"\n",
		"local":  "[store]\nbackend = \"local\"\ndir = \"store\"\n",
	}[backend]
	if backend == "nats" {
		text = fmt.Sprintf("[store]\nbackend = \"nats\"\n[nats]\nurl = %q\n", startServer(t))
	}
	if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return openDir(t, dir)
}

// openDir opens the store that a directory's tally.toml names, closed with the
// test.
func openDir(t testing.TB, dir string) *tally.Store {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return st
}

// startServer runs a server as an operator would, on loopback, and gives its URL.
func startServer(t testing.TB) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return srv.ClientURL()
}

func TestBackends(t *testing.T) {
	eachBackend(t, func(t *testing.T, st *tally.Store) {
		s := st.Session("s")
		if _, err := s.AppendTurns(t.Context(), "main", []byte(`{"role": "user"}`)); err != nil {
			t.Fatal(err)
		}
		state, err := s.Load(t.Context(), "")
		if err != nil || string(state.Threads.Turns("main")[0].Raw) != `{"role": "user"}` {
			t.Fatalf("%v, %v", state, err)
		}
	})
}
