package cmd_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/tavern"
)

// For TALLY_IDLE, by default a minute, an idle team costs nothing: its owner with its daemons, and daemons of another
// process, use almost no processor time, and the log does not grow.
func TestTeamIdle(t *testing.T) {
	testkit.OnlySoak(t)
	onDisk(t)
	const documents, queues, agents = 10_000, 100, 100
	k := newKept(t)
	k.config("namespace = \"project\"\n")
	k.fill(k.keeps(), documents, func(n int) (id, text string) { return fmt.Sprintf("n%05d.txt", n), text4K(n)[4000:] })
	st := k.keeps()
	for n := range queues {
		if _, err := tavern.QueueOf(st, fmt.Sprint("q", n)).Enqueue(t.Context(), tavern.Item{Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range agents {
		if _, err := tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{Name: fmt.Sprint("agent ", n), Assignment: "rest"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	k.servePlain()
	beside := k.program(filepath.Join(k.bin, "tally"), "daemon", "run", "--store", k.store, "--log-level", "error")
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { beside.Process.Kill(); beside.Wait() })
	time.Sleep(20 * time.Second) // the work after a start is done by then
	sizes := func() (n int64) {
		t.Helper()
		err := filepath.WalkDir(filepath.Join(k.store, "jetstream"), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				n += info.Size()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	length := figureTime(t, "TALLY_IDLE", time.Minute)
	head, size, memory := k.head(), sizes(), k.memory("VmRSS")
	if want := documents + queues + agents; int(head) < want {
		t.Fatalf("got %v records, want %d", head, want)
	}
	before, _ := k.cost()
	tendBefore, _ := costOf(t, beside.Process.Pid)
	began := time.Now()
	time.Sleep(length)
	after, _ := k.cost()
	tendAfter, _ := costOf(t, beside.Process.Pid)
	passed := time.Since(began)
	share := func(used time.Duration) float64 { return 100 * float64(used) / float64(passed) }
	t.Logf("%v: serve %.3f %% of a core (target 0.5), daemon run %.3f %%; memory %d MB, then %d MB; the log has %v records in %d bytes, then %v in %d", length,
		share(after-before), share(tendAfter-tendBefore), memory>>20, k.memory("VmRSS")>>20, head, size, k.head(), sizes())
	if all := share(after - before + tendAfter - tendBefore); all > 0.5 {
		t.Errorf("got %.3f %% of a core", all)
	}
	if now, bytes := k.head(), sizes(); now != head || bytes != size {
		t.Errorf("the log grew from %v records in %d bytes to %v in %d", head, size, now, bytes)
	}
}
