//go:build unix

package cmd_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// A stopped owner is named in the error, and keeps its store. When it continues, it has its store and its records.
func TestOwnerThatStandsStill(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel() // the test mostly waits
	dir := filepath.Join(t.TempDir(), "store")
	output(t, strings.NewReader(`{"role":"user","content":"hello"}`), dir, "tally", "append", "s")
	owner := owner(t, dir)
	if err := owner.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for _, args := range looks {
		waiting.Go(func() {
			cmd := command(t.Context(), dir, "tally", strings.Fields(args)...)
			var errw bytes.Buffer
			cmd.Stderr = &errw
			err := cmd.Run()
			want := fmt.Sprintf("process %d owns the store in %s and does not answer", owner.Process.Pid, dir)
			if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(errw.String(), want) {
				t.Errorf("%s: got exit code %d (%v) and %q, want 7 and %q", args, code, err, errw.String(), want)
			}
		})
	}
	waiting.Wait()
	doctor := command(t.Context(), dir, "tally", "doctor")
	examined, err := doctor.Output()
	if want := fmt.Sprintf("process %d owns the store and does not answer", owner.Process.Pid); doctor.ProcessState.ExitCode() != 7 || !bytes.Contains(examined, []byte(want)) {
		t.Errorf("doctor: got %v\n%s\nwant exit code 7 and %q", err, examined, want)
	}
	for _, s := range []syscall.Signal{syscall.SIGCONT, syscall.SIGINT} {
		if err := owner.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := owner.Wait(); err != nil {
		t.Error(err)
	}
	output(t, nil, dir, "tally", "show", "s")
}
