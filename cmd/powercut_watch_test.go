//go:build linux

package cmd_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// After a power cut while a watch follows files, each of their lines is stored once, whatever the disk kept of the
// store and of the watch's state.
func TestPowerCutOfWatch(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestPowerCut cuts the power; TestKillWatch has the same promise")
	t.Parallel()
	needImages(t)
	t.Run("A13 the power goes under a watch", func(t *testing.T) {
		cuts := 3
		if testkit.Soak() {
			cuts = 100
		}
		d := newDisk(t)
		files := newTranscripts(t, filepath.Join(t.TempDir(), "kept"), 5)
		for i := range files.count {
			files.grow(i, 100)
		}
		stop := files.growUntil(30 * time.Millisecond)
		for range cuts {
			d.power(t, func(store string) {
				w := mustWatch(t, store, files.dir)
				w.lines(1 + testkit.Random(t).IntN(100))
				time.Sleep(time.Duration(testkit.Random(t).Int64N(int64(2 * time.Second)))) // the watch writes its state each second
				w.kill()
			})
		}
		stop()
		d.verify(t)
		dir, unmount := mount(t, d.image)
		defer unmount()
		files.mustHaveLines(filepath.Join(dir, "store"), files.dir)
	})
}
