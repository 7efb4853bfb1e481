package program_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A session of a store with many sessions is shown without much more memory than that of a store with one.
func TestShowAmongManySessions(t *testing.T) {
	testkit.OnlyFull(t, "no cheap test can: it takes a store of many sessions")
	const most = 20 << 20
	sessions := 20_000
	if testkit.Soak() {
		sessions = 100_000
	}
	quietHome(t)
	one, many := allocatedByShow(t, 1), allocatedByShow(t, sessions)
	t.Logf("show allocates %.1f MB, among %d sessions %.1f MB", float64(one)/(1<<20), sessions, float64(many)/(1<<20))
	if many > one+most {
		t.Errorf("show among %d sessions allocates %d MB, want at most %d MB more than the %d MB in a store with one session", sessions, many>>20, most>>20, one>>20)
	}
}

// allocatedByShow returns how many bytes the command show allocates in a store that was closed in order.
func allocatedByShow(t *testing.T, sessions int) uint64 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local", Source: "urn:test", Own: true})
	if err != nil {
		t.Fatal(err)
	}
	var sent []*tally.Pending
	wait := func() {
		for _, p := range sent {
			if _, err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		sent = sent[:0]
	}
	for i := range sessions {
		sub := events.Session("", fmt.Sprint("s", i))
		e, err := events.New("urn:test", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(`{"role":"user","content":"hello"}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		if sent = append(sent, st.Log.AppendAsyncBuffered(t.Context(), sub, log.Any, e)); len(sent) == 512 {
			wait()
		}
	}
	wait()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TALLY_STORE", dir)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := command("show s0", false).ask(t.Context(), nil)
	runtime.ReadMemStats(&after)
	if got.code != 0 {
		t.Fatalf("show among %d sessions: %v", sessions, got)
	}
	return after.TotalAlloc - before.TotalAlloc
}
