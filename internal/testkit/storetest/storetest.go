// Package storetest opens stores for tests: on every backend, in memory, and on a log that fails on purpose.
package storetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// Each runs a test on every backend, selected only by a configuration file: in memory, on a directory of this machine,
// on a server of others. Stores do the same on all of them, so everybody's tier takes only the directory, and CI's
// takes all.
func Each(t *testing.T, test func(t *testing.T, st *tally.Store)) {
	t.Helper()
	EachWith(t, embedded.Options{}, test)
}

// EachWith is Each with options. It replaces their location of the store.
func EachWith(t *testing.T, o embedded.Options, test func(t *testing.T, st *tally.Store)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			skipBackend(t, backend)
			st, _ := open(t, backend, o)
			test(t, st)
		})
	}
}

var backends = []string{"memory", "local", "nats"}

// skipBackend skips a backend that a tier omits. Under the race detector the server of others is omitted: the log's own
// tests use one.
func skipBackend(t *testing.T, backend string) {
	t.Helper()
	if backend != "local" {
		testkit.OnlyFull(t, "the same test runs on a directory of this machine")
	}
	if backend == "nats" && !testkit.Soak() {
		testkit.NotUnderRace(t)
	}
}

// EachDir is Each with the folder of the backend's files: the store's, or the server's; "" in memory.
func EachDir(t *testing.T, test func(t *testing.T, st *tally.Store, dir string)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			skipBackend(t, backend)
			st, dir := open(t, backend, embedded.Options{})
			test(t, st, dir)
		})
	}
}

// Open opens a new and empty store, closed with the test.
func Open(t testing.TB, backend string) *tally.Store {
	t.Helper()
	st, _ := open(t, backend, embedded.Options{})
	return st
}

// open opens a store, and returns the folder of its files.
func open(t testing.TB, backend string, o embedded.Options) (st *tally.Store, files string) {
	t.Helper()
	dir := t.TempDir()
	text := map[string]string{
		"memory": "[store]\nbackend = \"memory\"\n",
		"local":  "[store]\nbackend = \"local\"\ndir = \"store\"\n",
	}[backend]
	switch backend {
	case "local":
		files = filepath.Join(dir, "store")
	case "nats":
		files = t.TempDir()
		text = fmt.Sprintf("[store]\nbackend = \"nats\"\n[nats]\nurl = %q\n", startServer(t, files))
	}
	if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o.ConfigDir = dir
	st, err := embedded.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return st, files
}

// startServer runs a server as an operator would, on loopback, and returns its URL.
func startServer(t testing.TB, dir string) string {
	t.Helper()
	srv, err := newServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	return srv.ClientURL()
}

// Memory opens a store on a log in memory. After its Close none of its goroutines runs.
func Memory(t *testing.T, c tally.Config) *tally.Store {
	t.Helper()
	before := goleak.IgnoreCurrent()
	now := time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC)
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	st, err := tally.Open(t.Context(), l, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	})
	return st
}

// Faulty returns a store on a log that fails on purpose.
func Faulty(t *testing.T, next func() logtest.Fault) *tally.Store {
	t.Helper()
	l := logtest.OpenOn(t, &logtest.Faulty{Backend: memlog.New(memlog.Config{}), Next: next}, log.Config{})
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}
