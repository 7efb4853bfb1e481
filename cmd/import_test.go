//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/gentree"
)

// An import of many sessions that was killed and is repeated imports everything, in bounded memory, and reports its
// progress.
func TestImportIsKilledAndStaysSmall(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	sessions, turns := 200, 50
	if testkit.Soak() {
		sessions, turns = 10000, 100
	}
	dir := t.TempDir()
	tree, store := filepath.Join(dir, "tree"), ""
	if _, err := gentree.Write(tree, gentree.Options{Seed: 1, Sessions: sessions, Turns: turns}); err != nil {
		t.Fatal(err)
	}

	var report struct {
		Sessions, Added, Changed, Unchanged, Events int
		Bytes                                       int64
	}
	var used int64
	began := time.Now()
	for try := 0; report.Events == 0; try++ { // until an import was killed before its end
		if try == 5 {
			t.Fatal("each import ended before it was killed")
		}
		store = filepath.Join(dir, fmt.Sprint("store", try))
		killedImport(t, store, tree)
		again := time.Now()
		c := command(t.Context(), store, "tally", "import", tree, "--progress", "json", "-o", "json")
		var out, errw bytes.Buffer
		c.Stdout, c.Stderr = &out, &errw
		var err error
		if used, err = runPeak(c); err != nil {
			t.Fatalf("%v\n%s", err, errw.String())
		}
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		if report.Sessions != sessions {
			t.Fatalf("the second run: got %+v", report)
		}
		if !strings.Contains(errw.String(), `"kind":"status"`) && time.Since(again) > 10*time.Second {
			t.Errorf("got no progress:\n%s", errw.String())
		}
	}
	server := peakMemory(t, command(t.Context(), store, "tally", "status"))
	t.Logf("%d sessions, %d events in the second run, %d MB read; peak memory %d MB, of a process that only opens the store %d MB; %v in all",
		report.Sessions, report.Events, report.Bytes>>20, used>>20, server>>20, time.Since(began).Round(time.Millisecond))
	if used-server > 200<<20 {
		t.Errorf("got %d MB beyond the server's %d MB", (used-server)>>20, server>>20)
	}
	exported := filepath.Join(dir, "out")
	output(t, nil, store, "tally", "export", "--all", "--format", "tallydir", "-o", exported)
	if diff, err := exec.Command("diff", "-r", tree, exported).CombinedOutput(); err != nil {
		t.Errorf("the export differs: %v\n%.2000s", err, diff)
	}
	if third := output(t, nil, store, "tally", "import", tree); !strings.Contains(third, " 0 events added") {
		t.Errorf("a third run: got %s", third)
	}
}

// killedImport imports a tree into a new store, and kills the import when a third of its bytes are stored.
func killedImport(t *testing.T, store, tree string) {
	t.Helper()
	c := command(t.Context(), store, "tally", "import", tree)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- c.Wait() }()
	for all := filesSize(tree); len(over) == 0 && filesSize(store) < all/3; {
		time.Sleep(5 * time.Millisecond)
	}
	c.Process.Signal(os.Kill)
	<-over
}

// filesSize returns the size of the files below a folder to which another process may be writing.
func filesSize(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file does not exist yet, or no more
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
