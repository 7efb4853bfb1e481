package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// For TALLY_STEADY, by default two minutes, a hundred files a minute (TALLY_STEADY_RATE) are saved in a tree, and as
// many documents appended. At the end it has no lag, and no more handles and watches than at the beginning, and at
// most a little more memory. Each tenth edit creates a folder and removes an earlier one.
func TestTreeSteady(t *testing.T) {
	testkit.OnlySoak(t)
	onDisk(t)
	const (
		files   = 200         // in each direction
		folders = 20          // in each direction: a file that is removed at once may not be noticed
		names   = 2 * folders // of folders: each new document uses space for good
		warm    = 400         // edits in each direction before the measurement
		growth  = 128 << 20   // bytes of memory that the process may gain
	)
	rate := figureNumber(t, "TALLY_STEADY_RATE", 100) // per minute
	k := keepTree(t, "mode = \"async\"\nbulk = \"never\"\n")
	ours := func(i int) string { return fmt.Sprintf("log/n%03d.txt", i%files) }
	theirs := func(i int) string { return fmt.Sprintf("files/n%03d.txt", i%files) }
	fill := func(format string, i int) (id, text string) { return fmt.Sprintf(format, i), text4K(i)[4000:] }
	for i := range files {
		k.write0(theirs(i))
		if err := k.put(ours(i), text4K(-1)); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	remove := func(id string) {
		t.Helper()
		doc, err := k.open().Documents().Read(t.Context(), "doc", id)
		if err == nil {
			_, err = k.open().Documents().Delete(t.Context(), "doc", id, doc.Offset, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	made, removed := 0, 0 // folders, in each direction
	edit := func(i int) {
		t.Helper()
		k.write(theirs(i), text4K(i))
		if err := k.put(ours(i), text4K(i)); err != nil {
			t.Fatal(err)
		}
		if i%10 > 0 {
			return
		}
		if made-removed == folders {
			removed++
			id, _ := fill("files/folder%d/n.txt", removed%names)
			if err := os.RemoveAll(filepath.Dir(k.file(id))); err != nil {
				t.Fatal(err)
			}
			id, _ = fill("log/folder%d/n.txt", removed%names)
			remove(id)
		}
		made++
		id, _ := fill("files/folder%d/n.txt", made%names)
		k.write0(id)
		id, text := fill("log/folder%d/n.txt", made%names)
		if err := k.put(id, text); err != nil {
			t.Fatal(err)
		}
	}
	edits := 0
	for ; edits < warm; edits++ {
		edit(edits)
		time.Sleep(50 * time.Millisecond)
	}
	// rests waits until both directions have caught up, and returns the state of the process then.
	rests := func() (memory int64, open, watched int) {
		t.Helper()
		k.settled()
		k.shows(time.Minute)
		time.Sleep(5 * time.Second) // moved paths are dropped by then
		open, watched = k.handles()
		return k.memory("VmRSS"), open, watched
	}
	memory, open, watched := rests()
	full := k.fullSegments()
	from, began := k.head(), time.Now()
	used, _ := k.cost()
	length := figureTime(t, "TALLY_STEADY", 2*time.Minute)
	var worst events.Offset
	tick := time.NewTicker(time.Minute / time.Duration(rate))
	defer tick.Stop()
	first, changed := edits, edits+made+removed
	for time.Since(began) < length {
		<-tick.C
		edit(edits)
		edits++
		if edits%rate == 0 {
			head, shown := k.head(), k.state().Shown
			worst = max(worst, head-min(head, shown))
			t.Logf("after %v: %d edits each way, %d events behind, %d MB", time.Since(began).Round(time.Second), edits-first, head-min(head, shown), k.memory("VmRSS")>>20)
		}
	}
	after, _ := k.cost()
	passed := time.Since(began)
	memoryAfter, openAfter, watchedAfter := rests()
	t.Logf("%d edits each way in %v: %.1f %% of a core, at most %d events behind when it was looked", edits-first, passed.Round(time.Second),
		100*float64(after-used)/float64(passed), worst)
	t.Logf("memory %d MB, then %d MB, at most %d MB; handles %d, then %d; watches %d, then %d", memory>>20, memoryAfter>>20, k.memory("VmHWM")>>20,
		open, openAfter, watched, watchedAfter)
	s, code := k.status()
	if code != 0 || s.LagEvents != 0 || s.Conflicts != 0 || len(s.Stuck) > 0 {
		t.Errorf("at the end: got %+v, %d", s, code)
	}
	// Connections come and go, and each full segment has its index open.
	if openAfter > open+2+k.fullSegments()-full || watchedAfter != watched {
		t.Errorf("handles grew from %d to %d, or watches from %d to %d", open, openAfter, watched, watchedAfter)
	}
	if memoryAfter > memory+growth {
		t.Errorf("memory grew by %d MB", (memoryAfter-memory)>>20)
	}
	if out, code := k.tally("tree", "verify"); code != 0 {
		t.Errorf("verify: got %d, %s", code, out)
	}
	taken := k.taken(from)
	n := 0
	for _, times := range taken {
		n += times
	}
	if want := edits + made + removed - changed; n != want {
		t.Errorf("%d edits of files and files in folders: got %d records", want, n)
	}
	for i := max(edits-files, 0); i < edits; i++ {
		if text, _ := k.text(theirs(i)); text != text4K(i) {
			t.Errorf("%s: got %q after a save", theirs(i), text)
		}
		if !fileIs(k.file(ours(i)), text4K(i)) {
			t.Errorf("%s: the file differs from the appended document", ours(i))
		}
	}
}

// fullSegments counts the segments of the log that are closed.
func (k *kept) fullSegments() int {
	k.t.Helper()
	list, err := filepath.Glob(filepath.Join(k.store, "segments", "*.index"))
	if err != nil {
		k.t.Fatal(err)
	}
	return len(list)
}
