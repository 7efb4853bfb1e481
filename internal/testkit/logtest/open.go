// Package logtest has shared parts of tests of an event log: a backend that fails on purpose ([Faulty]) and the suite
// that every backend passes ([Run]).
package logtest

import (
	"testing"

	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// Open returns a new log in memory, closed when the test ends.
func Open(t testing.TB) *log.Log {
	t.Helper()
	return OpenOn(t, memlog.New(memlog.Config{}), log.Config{})
}

// OpenOn returns a log on a backend, closed when the test ends.
func OpenOn(t testing.TB, b log.Backend, c log.Config) *log.Log {
	t.Helper()
	l, err := log.OpenOn(t.Context(), b, c)
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
