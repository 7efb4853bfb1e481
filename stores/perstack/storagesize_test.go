package perstack_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/perstack"
)

// The size of a job depends on its new content: for 200 steps of 4 KiB, with all types of events that change a run's
// state, log and catalog take at most 1.5 times the distinct bytes, plus 1 KiB for each stored value.
//
// The distinct values are the messages, tool calls and tool results of the runtime, each as JSON and counted once,
// however often it is repeated. A tool's result and its message are two values, because neither can be made from the
// other. All other content (names, ids, usage, the frame of a checkpoint) must fit into the KiB of its value.
//
// Snapshots and the search view are caches that have the text of each turn once more. They grow with new content too,
// but are not part of this sum.
func TestRoom(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestSize bounds the bytes in the log")
	testkit.NotUnderRace(t)
	dir := filepath.Join(t.TempDir(), "store")
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local", Own: true})
	must(t, err)
	h := perstack.JobOf(st, "job-1")
	_, err = h.Create(t.Context(), perstack.CreateInitialJob("job-1", "@acme/coder"))
	must(t, err)
	r, folder := playInto(t, h, 200, 4<<10)
	showsAll(t, st)
	must(t, st.Close())

	sizes, distinct := sizesOf(t, dir), r.bytesMade()
	caches := sizes["snapshots"] + sizes["search.db"]
	kept := -caches
	for _, n := range sizes {
		kept += n
	}
	t.Logf("%d values, with %d distinct bytes, %d of them messages; in the original's folder they are %d bytes; in the store %v: log and catalog %.2f times the distinct bytes, caches %.2f times",
		folder.files, distinct, r.said, folder.bytes, sizes, float64(kept)/float64(distinct), float64(caches)/float64(distinct))
	if most := distinct*3/2 + folder.files<<10; kept > most {
		t.Errorf("log and catalog take %d bytes, want at most %d", kept, most)
	}
	if most := 5 * distinct; caches > most {
		t.Errorf("snapshots and the searched text take %d bytes, want at most %d", caches, most)
	}
}

// original is the size of a job's folder in the original.
type original struct{ files, bytes int }

// playInto stores the output of a runtime, and returns the size of the original's folder.
func playInto(t testing.TB, h *perstack.Handle, steps, size int) (*runtime, original) {
	t.Helper()
	var o original
	seen := make(map[string]bool)
	r := newRuntime(h.ID(), size, func(p played) {
		o.files, o.bytes = o.files+1, o.bytes+len(p.raw)
		seen[p.kind] = true
		var err error
		if p.kind == "checkpoint" {
			_, err = h.SaveCheckpointRaw(t.Context(), p.raw)
		} else {
			_, err = h.RecordRaw(t.Context(), p.raw)
		}
		if err != nil {
			t.Fatalf("%s: %v", p.kind, err)
		}
	})
	r.play(steps)
	for _, typ := range states {
		if !seen[typ] {
			t.Fatalf("the runtime emitted no %s", typ)
		}
	}
	return r, o
}

// showsAll waits until the views have caught up.
func showsAll(t testing.TB, st *tally.Store) {
	t.Helper()
	at, err := st.Log.Durable(t.Context())
	must(t, err)
	for _, v := range catalog.Views(render.Opening, render.Said) {
		must(t, st.Wait(t.Context(), v.Name, at))
	}
}

// sizesOf returns the bytes below a directory, by first name.
func sizesOf(t testing.TB, dir string) map[string]int {
	t.Helper()
	sizes := make(map[string]int)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sizes[firstOf(rel)] += int(info.Size())
		return nil
	}))
	return sizes
}

func firstOf(path string) string {
	for dir := filepath.Dir(path); dir != "."; path, dir = dir, filepath.Dir(dir) {
	}
	return path
}
