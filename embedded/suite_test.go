package embedded_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
)

// The owner's log keeps every promise while one sync covers many appends.
func TestOwnerKeepsThePromises(t *testing.T) {
	testkit.NotUnderRace(t) // TestAttachedToSegmentsKeepsThePromises runs the same code there
	t.Parallel()
	logtest.Run(t, func(t *testing.T) *log.Log {
		return mustStart(t, embedded.ServerOptions{Dir: t.TempDir()}).Log()
	})
}

// The log of a process that appends through the owner keeps every promise.
func TestAttachedKeepsThePromises(t *testing.T) {
	testkit.OnlySoak(t) // TestAttachedToSegmentsKeepsThePromises
	t.Parallel()
	logtest.Run(t, func(t *testing.T) *log.Log {
		dir := t.TempDir()
		mustStart(t, embedded.ServerOptions{Dir: dir})
		a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a.Log()
	})
}

// The owner's log and that of an attached process keep every promise while segments begin all the time.
func TestSegmentsKeepThePromises(t *testing.T) {
	testkit.OnlySoak(t) // TestAttachedToSegmentsKeepsThePromises
	t.Parallel()
	logtest.Run(t, func(t *testing.T) *log.Log {
		return mustStart(t, tiny(t.TempDir())).Log()
	})
}

func TestAttachedToSegmentsKeepsThePromises(t *testing.T) {
	testkit.OnlyFull(t, "TestOwnerKeepsThePromises plays the suite, on one segment")
	t.Parallel()
	logtest.Run(t, func(t *testing.T) *log.Log {
		dir := t.TempDir()
		mustStart(t, tiny(dir))
		a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a.Log()
	})
}

// tiny returns the options of a store that begins a segment every few appends, and often opens its server's streams
// again.
func tiny(dir string) embedded.ServerOptions {
	return embedded.ServerOptions{Dir: dir, SegmentBytes: 2 << 10, RereadBytes: 32 << 10}
}

// mustReadToken reads the user and the password in owner.json.
func mustReadToken(t *testing.T, dir string) (user, password string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "owner.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ User, Token string }
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o.User, o.Token
}
