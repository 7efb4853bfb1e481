//go:build linux

package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit"
)

// After a power cut, each acknowledged document of a tree in mode sync is in its file.
func TestPowerCutOfTrees(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestPowerCut cuts the power; TestTreeSync of embedded has the same promise")
	t.Parallel()
	needImages(t)
	t.Run("D-02 what was acknowledged is in its file after a power cut", func(t *testing.T) {
		cuts, acked := 2, 0
		if testkit.Soak() {
			cuts = 300
		}
		for range cuts {
			n, lost := cutTree(t)
			if acked += n; len(lost) > 0 {
				t.Fatalf("%d acknowledged documents: got these without their files: %v", n, lost)
			}
		}
		if t.Logf("%d cuts, %d documents", cuts, acked); acked == 0 {
			t.Error("no acknowledgement: the test showed nothing")
		}
	})
}

// cutTree writes documents to a store on this disk, whose tree is on an image, and continues with the image's content
// at some moment.
func cutTree(t *testing.T) (acked int, lost []string) {
	t.Helper()
	d := newDisk(t)
	dir, unmount := mount(t, d.image)
	k := newKept(t)
	k.project, k.folder = dir, filepath.Join(dir, "tree")
	if err := os.MkdirAll(k.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "sync", "-f", dir) // the folder existed before
	k.says("")
	k.serve()
	st := k.open()
	const writers = 4
	var off atomic.Bool
	var all sync.WaitGroup
	var last [writers]int // the last acknowledged number, by writer
	begun := make(chan struct{}, writers)
	for w := range writers {
		all.Go(func() {
			for n := 1; !off.Load(); n++ {
				if _, err := st.Documents().Save(t.Context(), "doc", fmt.Sprintf("w%d.txt", w), tally.Write{Data: fmt.Appendf(nil, "%d\n", n)}); err != nil {
					return
				}
				if off.Load() {
					return // the error may be that of a killed process
				}
				if last[w] = n; n == 1 {
					begun <- struct{}{}
				}
			}
		})
	}
	select {
	case <-begun:
	case <-time.After(within):
		t.Error("got no acknowledgement")
	}
	time.Sleep(time.Duration(testkit.Random(t).Int64N(int64(500 * time.Millisecond)))) // of work
	off.Store(true)
	if err := k.serving.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.serving.Wait()
	survived := d.image + ".cut"
	mustRun(t, "cp", "--sparse=always", d.image, survived)
	all.Wait()
	st.Close()
	unmount()
	after, unmount := mount(t, survived)
	defer unmount()
	for w, n := range last {
		if n == 0 {
			continue
		}
		acked += n
		text, err := os.ReadFile(filepath.Join(after, "tree", "docs", fmt.Sprintf("w%d.txt", w)))
		var got int
		if _, scanErr := fmt.Sscan(string(text), &got); err != nil || scanErr != nil || got < n {
			lost = append(lost, fmt.Sprintf("w%d: %d, there is %.20q, %v", w, n, text, err))
		}
	}
	return acked, lost
}
