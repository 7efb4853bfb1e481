package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally/internal/testkit"
)

// On a full disk a watch waits and reports that, and continues by itself when there is free space: no line is lost or
// stored twice.
func TestWatchOnAFullDisk(t *testing.T) {
	t.Run("A13 a full disk", func(t *testing.T) {
		testkit.Long(t)
		t.Parallel()
		testkit.Needs(t, os.Getuid() == 0, "root, to mount a file system")
		image := filepath.Join(t.TempDir(), "image")
		mustRun(t, "truncate", "-s", "200M", image)
		mustRun(t, "mkfs.ext4", "-q", "-F", "-m", "0", image)
		disk, unmount := mount(t, image)
		defer unmount()
		store := filepath.Join(disk, "store")
		home := t.TempDir() // on another disk
		if err := os.Symlink(home, store+"-home"); err != nil {
			t.Fatal(err)
		}
		files := newTranscripts(t, store, 2)
		files.grow(0, 10)
		w := mustWatch(t, store)
		w.lines(10)
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Fatal(err)
		}
		filler := filepath.Join(disk, "filler")
		mustRun(t, "fallocate", "-l", fmt.Sprint(st.Bavail*uint64(st.Bsize)-(1<<20)), filler)
		files.grow(0, 20)
		files.grow(1, 20)
		left := 60 // lines; the watch may append some of them before the disk is full
		until := func(event string) func(told) bool {
			return func(l told) bool {
				if l.Event == "session" {
					left -= l.Lines
				}
				return l.Event == event
			}
		}
		w.await("that nothing can be written", until("blocked"))
		files.grow(1, 20)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		mustRun(t, "sync", "-f", disk)
		w.await("that it goes on", until("unblocked"))
		if left > 0 {
			w.lines(left)
		}
		w.stop()
		files.mustHold(store)
	})
}
