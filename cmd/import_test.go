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
	"syscall"
	"testing"
	"time"
)

// An import of many sessions that is killed in the middle and run again is whole,
// stays small, and says how far it has got.
func TestImportIsKilledAndStaysSmall(t *testing.T) {
	sessions, turns := 400, 50
	if soak() {
		sessions, turns = 10000, 100
	}
	dir := t.TempDir()
	tree, store := filepath.Join(dir, "tree"), filepath.Join(dir, "store")
	output(t, nil, store, "tally-ingest", "generate", tree, "--sessions", strconv.Itoa(sessions), "--turns", strconv.Itoa(turns))

	began := time.Now()
	c := command(t.Context(), store, "tally-ingest", "import", tree)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for sessionsIn(t, store) < sessions/3 { // until the import is in the middle
		time.Sleep(20 * time.Millisecond)
	}
	c.Process.Signal(os.Kill)
	if err := c.Wait(); err == nil {
		t.Log("the import was done before it could be killed")
	}

	c = command(t.Context(), store, "tally-ingest", "import", tree, "--progress", "json", "-o", "json")
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errw.String())
	}
	var report struct {
		Sessions, Added, Changed, Unchanged, Events int
		Bytes                                       int64
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Sessions != sessions || report.Events == 0 {
		t.Errorf("the second run came to %+v", report)
	}
	if !strings.Contains(errw.String(), `"kind":"status"`) && time.Since(began) > 10*time.Second {
		t.Errorf("no progress was shown:\n%s", errw.String())
	}
	server := peakMemory(t, command(t.Context(), store, "tally-replay", "status"))
	used := peak(c)
	t.Logf("%d sessions, %d events in the second run, %d MB read; peak memory %d MB, of a process that only opens the store %d MB; %v in all",
		report.Sessions, report.Events, report.Bytes>>20, used>>20, server>>20, time.Since(began).Round(time.Millisecond))
	if used-server > 200<<20 {
		t.Errorf("the import took %d MB beyond the server's %d MB", (used-server)>>20, server>>20)
	}
	exported := filepath.Join(dir, "out")
	output(t, nil, store, "tally-replay", "export", "--all", "--format", "tallydir", "-o", exported)
	if diff, err := exec.Command("diff", "-r", tree, exported).CombinedOutput(); err != nil {
		t.Errorf("the export differs: %v\n%.2000s", err, diff)
	}
	again := output(t, nil, store, "tally-ingest", "import", tree)
	if !strings.Contains(again, " 0 events added") {
		t.Errorf("a third run: %s", again)
	}
}

// sessionsIn counts the sessions in a store that a running import may own.
func sessionsIn(t *testing.T, store string) int {
	t.Helper()
	var s struct{ Sessions int }
	if err := json.Unmarshal([]byte(output(t, nil, store, "tally-replay", "status", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s.Sessions
}

func peakMemory(t *testing.T, c *exec.Cmd) int64 {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return peak(c)
}

// peak is the largest resident memory that a process had, in bytes.
func peak(c *exec.Cmd) int64 {
	usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss * 1024 // Linux counts in kilobytes
}
