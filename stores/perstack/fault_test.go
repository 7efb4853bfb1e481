package perstack_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// A call without an acknowledgement is repeated, and stored once.
func TestFaults(t *testing.T) {
	withKey(t)
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, h := t.Context(), perstack.JobOf(st, "j")
		j := perstack.CreateInitialJob("j", "coder")
		call("StoreJob", 1, func() error { return perstack.StoreJob(ctx, st, j) })
		call("StoreJob, the same", 0, func() error { return perstack.StoreJob(ctx, st, j) })
		call("Update", 1, func() error {
			_, err := h.Update(ctx, func(j *perstack.Job) error { j.TotalSteps++; return nil })
			return err
		})
		for i := range 3 {
			c := checkpoint("j", "r", fmt.Sprint("c", i), int64(i), messages(0, i+1))
			call("SaveCheckpoint", 2, func() error { _, err := h.SaveCheckpoint(ctx, c); return err })
			call("SaveCheckpoint, the same", 0, func() error { _, err := h.SaveCheckpoint(ctx, c); return err })
		}
		call("Record", 1, func() error { return perstack.DefaultStoreEvent(ctx, st, event("j", "r", "e", "callTools", 1, 1)) })
		call("Record, the same", 0, func() error { _, err := h.Record(ctx, event("j", "r", "e", "callTools", 1, 1)); return err })
		call("Record the end of a step", 2, func() error { _, err := h.Record(ctx, ending("j", "r", "f", 1, 5)); return err })
		call("SaveSetting", 2, func() error { return perstack.StoreRunSetting(ctx, st, setting("j", "r", "k", 1), nil, nil) })
		call("SaveSetting, later", 1, func() error { return perstack.StoreRunSetting(ctx, st, setting("j", "r", "k", 1), nil, nil) })
		call("Resume", 1, func() error { _, err := h.Resume(ctx, "c1"); return err })
		if list := need(perstack.GetCheckpointsByJobID(ctx, st, "j")); len(list) != 4 || len(list[3].Messages) != 2 && len(list[3].Messages) != 3 {
			t.Errorf("the checkpoints are %+v", list)
		}
	})
}

// If a process dies during a save, even between the messages of a checkpoint and the checkpoint, nothing is half
// stored. The next process's call appends the missing records once.
func TestSaveKilled(t *testing.T) {
	first, second := checkpoint("j", "r", "c1", 1, messages(0, 2)), checkpoint("j", "r", "c2", 2, messages(0, 4))
	for n := range 3 { // number of publications that reach the log before the process dies
		t.Run(fmt.Sprintf("P-32 after %d records", n), func(t *testing.T) {
			left := 2
			st := storetest.Faulty(t, func() logtest.Fault {
				if left--; left < 0 {
					return logtest.Dropped
				}
				return logtest.None
			})
			ctx := t.Context()
			need(perstack.JobOf(st, "j").SaveCheckpoint(ctx, first))
			left = n
			if _, err := perstack.JobOf(st, "j").SaveCheckpoint(ctx, second); (err == nil) != (n == 2) {
				t.Fatalf("the error of the killed process is %v", err)
			}
			left = 100
			if list := need(perstack.JobOf(st, "j").CheckpointList(ctx)); len(list) != 1 && n < 2 {
				t.Errorf("got %d checkpoints", len(list))
			}
			next := perstack.JobOf(st, "j")
			need(next.SaveCheckpoint(ctx, second))
			if have := records(t, st); have != 4 {
				t.Errorf("after the repetition there are %d records", have)
			}
			if diff := cmp.Diff([]perstack.Checkpoint{first, second}, need(next.Checkpoints(ctx))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// killedDir passes the store's directory to a copy of the test program.
const killedDir = "TALLY_TEST_PERSTACK_DIR"

// The process that owns the store is killed while it works on a job: everything that was acknowledged is stored, and
// the next process repeats the calls without adding records.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		if err := workUntilKilled(t.Context(), dir); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	testkit.Long(t)
	testkit.NotUnderRace(t) // a killed process reports nothing
	dir := filepath.Join(t.TempDir(), "store")
	t.Run("P-32 a killed process loses nothing that was acknowledged", func(t *testing.T) {
		done := 0
		for life := range 3 {
			done = max(done, killAfter(t, dir, 5+7*life+done))
			st := need(embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"}))
			h := perstack.JobOf(st, "j")
			for i := range done {
				if diff := cmp.Diff(stepOf(i), need(h.Checkpoint(t.Context(), fmt.Sprint("c", i)))); diff != "" {
					t.Errorf("checkpoint %d of %d: %s", i, done, diff)
				}
			}
			had := records(t, st)
			for i := range done {
				need(h.SaveCheckpoint(t.Context(), stepOf(i)))
				need(h.Record(t.Context(), ending("j", "r", fmt.Sprint("e", i), int64(i), 5)))
			}
			if n := records(t, st); n-had > 2 { // the event and the cost of the last step may have been missing
				t.Errorf("the repetition of stored calls added %d records", n-had)
			}
			if totals := need(h.Totals(t.Context())); totals.Said < done || totals.Said > done+1 || totals.Usage.InputTokens != int64(5*totals.Said) {
				t.Errorf("after %d steps the totals are %+v", done, totals)
			}
			must(t, st.Close())
		}
	})
}

func stepOf(i int) perstack.Checkpoint {
	return checkpoint("j", "r", fmt.Sprint("c", i), int64(i), messages(0, i+1))
}

// workUntilKilled reports each step when it is stored.
func workUntilKilled(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := perstack.DefaultStoreCheckpoint(ctx, st, stepOf(i)); err != nil {
			return err
		}
		fmt.Println("stored", i)
		if err := perstack.DefaultStoreEvent(ctx, st, ending("j", "r", fmt.Sprint("e", i), int64(i), 5)); err != nil {
			return err
		}
	}
}

// killAfter runs a copy of the test program and kills it after some steps. It returns how many steps are known to be
// stored.
func killAfter(t *testing.T, dir string, steps int) (done int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), killedDir+"="+dir)
	out := need(cmd.StdoutPipe())
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n := 0
		if _, err := fmt.Sscanf(lines.Text(), "stored %d", &n); err == nil {
			if done = max(done, n+1); done == steps {
				must(t, cmd.Process.Kill())
			}
		} else if len(lines.Text()) > 6 && lines.Text()[:6] == "failed" {
			t.Error(lines.Text())
		}
	}
	_ = cmd.Wait() // it was killed
	return done
}
