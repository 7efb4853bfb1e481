package perstack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/perstack"
)

// delegatesOf passes the store and the range of delegates to a copy of the test program.
const delegatesOf = "TALLY_TEST_PERSTACK_DELEGATES"

// Delegates in many processes work on one job at the same time: checkpoints, events, updates of the job. Nothing is
// lost, the totals are exact, and each run keeps its order.
func TestDelegateProcesses(t *testing.T) {
	const processes, each = 8, 4
	steps := int64(2)
	if testkit.Soak() {
		steps = 30
	}
	if text := os.Getenv(delegatesOf); text != "" {
		part, dir, _ := strings.Cut(text, " ")
		work := 0
		fmt.Sscan(part, &work)
		delegatesWork(t, dir, work*each, (work+1)*each, steps)
		return
	}
	testkit.Long(t)
	testkit.OnlyFull(t, "TestDelegates has as many delegates in one process")
	testkit.NotUnderRace(t) // the copies are not built with it
	dir := filepath.Join(t.TempDir(), "store")
	st := need(embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local", Own: true}))
	defer func() { must(t, st.Close()) }()
	must(t, perstack.StoreJob(t.Context(), st, perstack.CreateInitialJob("j", "coder")))
	need(perstack.JobOf(st, "j").SaveCheckpoint(t.Context(), checkpoint("j", "root", "c", 1, messages(0, 3))))
	t.Run("P-31 32 delegates in 8 processes lose nothing", func(t *testing.T) {
		var all sync.WaitGroup
		for p := range processes {
			copied := exec.Command(os.Args[0], "-test.run=^TestDelegateProcesses$")
			copied.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", delegatesOf, p, dir))
			all.Go(func() {
				if out, err := copied.CombinedOutput(); err != nil {
					t.Errorf("process %d: %v\n%s", p, err, out)
				}
			})
		}
		all.Wait()
		wantDelegates(t, st, processes*each, steps)
	})
}

// delegatesWork does the work of some delegates, all at once, each with its own handle.
func delegatesWork(t *testing.T, dir string, from, to int, steps int64) {
	st := need(embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"}))
	defer func() { must(t, st.Close()) }()
	var all sync.WaitGroup
	for child := from; child < to; child++ {
		h, run := perstack.JobOf(st, "j"), fmt.Sprint("r", child)
		all.Go(func() {
			for step := range steps {
				if err := work(t, h, run, child, step); err != nil {
					t.Errorf("%s: %v", run, err)
					return
				}
			}
		})
	}
	all.Wait()
}
