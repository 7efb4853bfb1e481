//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	sessions, turns := 400, 50
	if soak() {
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
	if err := <-over; err == nil {
		t.Log("the import was done before it could be killed")
	}

	c = command(t.Context(), store, "tally", "import", tree, "--progress", "json", "-o", "json")
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	used, err := runPeak(c)
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
	if report.Sessions != sessions || report.Events == 0 {
		t.Errorf("the second run came to %+v", report)
	}
	if !strings.Contains(errw.String(), `"kind":"status"`) && time.Since(began) > 10*time.Second {
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
	again := output(t, nil, store, "tally", "import", tree)
	if !strings.Contains(again, " 0 events added") {
		t.Errorf("a third run: %s", again)
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

// peakMemory runs a command that must succeed, and gives the largest resident memory
// that it had, in bytes.
func peakMemory(t *testing.T, c *exec.Cmd) int64 {
	t.Helper()
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	most, err := runPeak(c)
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return most
}

// runPeak runs a command and looks at its largest resident memory until it is over.
// (What Linux tells of a child that is over counts the memory of its parent, which was
// its own until it became another program.)
func runPeak(c *exec.Cmd) (most int64, err error) {
	if err := c.Start(); err != nil {
		return 0, err
	}
	over := make(chan error, 1)
	go func() { over <- c.Wait() }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-over:
			if err == nil && most == 0 {
				err = errors.New("nothing was seen of its memory")
			}
			return most, err
		case <-tick.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid)) // none: it is over
			_, rest, _ := strings.Cut(string(status), "VmHWM:")
			var kilobytes int64
			fmt.Sscan(rest, &kilobytes)
			most = max(most, kilobytes<<10)
		}
	}
}
