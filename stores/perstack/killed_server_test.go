package perstack_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// The store is on a server that others run. The client is killed at random moments while it makes every kind of write.
// Every other time the server is killed before, and the client continues when it is back. Syncs do not matter here: the
// operating system keeps the writes of a killed process. Power cuts are tested elsewhere.
func TestKilledOnServer(t *testing.T) {
	testkit.OnlyFull(t, "TestSaveKilledOnServer plays P-32")
	testkit.Long(t)
	testkit.NotUnderRace(t) // a killed process reports nothing
	withKey(t)              // for the copies too
	kills := 3
	if testkit.Soak() {
		kills = 500
	}
	t.Run("P-32 client and server killed in any call", func(t *testing.T) {
		var s *storetest.Server
		killInCalls(t, kills, func(n int) (string, []func()) {
			if n%killsOfOne == 0 {
				s = storetest.StartServer(t)
			}
			if n%2 == 0 {
				return s.URL, nil
			}
			return s.URL, []func(){func() { s.Kill(); s.Start() }}
		})
	})
}

// killedSave passes the server's URL to a copy of the test program.
const killedSave = "TALLY_TEST_PERSTACK_SAVE"

// The client of a server is killed while it saves a checkpoint: before the server has its messages, between them and
// the checkpoint, and after both.
func TestSaveKilledOnServer(t *testing.T) {
	first, second := checkpoint("j", "r", "c1", 1, messages(0, 2)), checkpoint("j", "r", "c2", 2, messages(0, 4))
	if url := os.Getenv(killedSave); url != "" {
		must(t, saveUntilKilled(t.Context(), url, first, second))
		return
	}
	testkit.Long(t)
	testkit.NotUnderRace(t) // a killed process reports nothing
	for n, until := range []string{"tally.turn.appended.v1", "tally.checkpoint.saved.v1", ""} {
		t.Run(fmt.Sprintf("P-32 after %d records", n), func(t *testing.T) {
			s := storetest.StartServer(t)
			killInSave(t, s, until)
			st := need(openAt(t.Context(), s.URL))
			defer func() { must(t, st.Close()) }()
			h, there := perstack.JobOf(st, "j"), []perstack.Checkpoint{first}
			if n == 2 {
				there = append(there, second)
			}
			if diff := cmp.Diff(there, need(h.Checkpoints(t.Context()))); diff != "" || records(t, st) != 2+n {
				t.Errorf("got %d records and the difference %s", records(t, st), diff)
			}
			need(h.SaveCheckpoint(t.Context(), second))
			if diff := cmp.Diff([]perstack.Checkpoint{first, second}, need(h.Checkpoints(t.Context()))); diff != "" || records(t, st) != 4 {
				t.Errorf("after the repetition: got %d records and the difference %s", records(t, st), diff)
			}
		})
	}
}

// saveUntilKilled saves a checkpoint, and another one on request.
func saveUntilKilled(ctx context.Context, url string, first, second perstack.Checkpoint) error {
	st, err := openAt(ctx, url)
	if err != nil {
		return err
	}
	h := perstack.JobOf(st, "j")
	for _, c := range []perstack.Checkpoint{first, second} {
		if _, err := h.SaveCheckpoint(ctx, c); err != nil {
			return err
		}
		fmt.Println("saved")
		fmt.Scanln()
	}
	return nil
}

// killInSave kills a copy during the save of its second checkpoint, when it sends a text that the server never gets,
// or, if until is "", after the save.
func killInSave(t *testing.T, s *storetest.Server, until string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSaveKilledOnServer$")
	cmd.Env = append(os.Environ(), killedSave+"="+s.URL, "TMPDIR="+t.TempDir()) // a killed process leaves its views there
	in, out := need(cmd.StdinPipe()), need(cmd.StdoutPipe())
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "saved" {
		t.Fatalf("the copy reports %q", lines.Text())
	}
	ended := make(chan struct{})
	if until != "" {
		held := s.Hold(until)
		go func() { defer close(ended); io.Copy(io.Discard, out) }()
		need(fmt.Fprintln(in))
		select {
		case <-held:
		case <-ended:
			t.Error("the copy ended before its kill")
		}
	} else if need(fmt.Fprintln(in)); !lines.Scan() || lines.Text() != "saved" {
		t.Errorf("the copy reports %q", lines.Text())
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
}
