//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// An import of many sessions that is killed in the middle and run again is whole,
// stays small, and says how far it has got.
func TestImportIsKilledAndStaysSmall(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	sessions, turns := 200, 50
	if testkit.Soak() {
		sessions, turns = 10000, 100
	}
	dir := t.TempDir()
	tree, store := filepath.Join(dir, "tree"), filepath.Join(dir, "store")
	output(t, nil, store, "tally", "generate", tree, "--sessions", strconv.Itoa(sessions), "--turns", strconv.Itoa(turns))

	began := time.Now()
	c := command(t.Context(), store, "tally", "import", tree)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- c.Wait() }()
	for len(over) == 0 && sessionsIn(t, store) < sessions/3 { // until the import is in the middle
		time.Sleep(20 * time.Millisecond)
	}
	c.Process.Signal(os.Kill)
	isDone := <-over == nil
	if isDone {
		t.Log("the import was done before it could be killed")
	}

	again := time.Now()
	c = command(t.Context(), store, "tally", "import", tree, "--progress", "json", "-o", "json")
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	used, err := runPeak(c)
	took := time.Since(again)
	if err != nil {
		t.Fatalf("%v\n%s", err, errw.String())
	}
	var report struct {
		Sessions, Added, Changed, Unchanged, Events int
		Bytes                                       int64
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Sessions != sessions || report.Events == 0 && !isDone {
		t.Errorf("the second run came to %+v", report)
	}
	if !strings.Contains(errw.String(), `"kind":"status"`) && took > 10*time.Second {
		t.Errorf("no progress was shown:\n%s", errw.String())
	}
	server := peakMemory(t, command(t.Context(), store, "tally", "status"))
	t.Logf("%d sessions, %d events in the second run, %d MB read; peak memory %d MB, of a process that only opens the store %d MB; %v in all",
		report.Sessions, report.Events, report.Bytes>>20, used>>20, server>>20, time.Since(began).Round(time.Millisecond))
	if used-server > 200<<20 {
		t.Errorf("the import took %d MB beyond the server's %d MB", (used-server)>>20, server>>20)
	}
	exported := filepath.Join(dir, "out")
	output(t, nil, store, "tally", "export", "--all", "--format", "tallydir", "-o", exported)
	if diff, err := exec.Command("diff", "-r", tree, exported).CombinedOutput(); err != nil {
		t.Errorf("the export differs: %v\n%.2000s", err, diff)
	}
	if third := output(t, nil, store, "tally", "import", tree); !strings.Contains(third, " 0 events added") {
		t.Errorf("a third run: %s", third)
	}
}

// sessionsIn counts the sessions in a store that a running import may own.
func sessionsIn(t *testing.T, store string) int {
	t.Helper()
	var s struct{ Sessions int }
	if err := json.Unmarshal([]byte(output(t, nil, store, "tally", "status", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s.Sessions
}
