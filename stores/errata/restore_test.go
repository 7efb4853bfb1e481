package errata_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
)

// A file is restored completely or not at all: another file takes its name, so that neither an open reader nor a
// crash sees half of it.
func TestRestoreReplaces(t *testing.T) {
	st := storetest.Open(t, "memory")
	s, dir := errata.Of(st, "s"), t.TempDir()
	writeTree(t, dir, map[string]string{"a": "old"})
	applyRun(t, s, dir, "q", map[string]string{"a": "new"})
	before, err := os.Stat(filepath.Join(dir, "a"))
	must(t, err)
	open, err := os.Open(filepath.Join(dir, "a"))
	must(t, err)
	defer open.Close()
	mustRewind(t, s, errata.WorkTree{Dir: dir})
	after, err := os.Stat(filepath.Join(dir, "a"))
	must(t, err)
	if os.SameFile(before, after) {
		t.Error("the file was written in place")
	}
	var was [8]byte
	if n, _ := open.Read(was[:]); string(was[:n]) != "new" {
		t.Errorf("a reader that was opened before got %q", was[:n])
	}
	wantEqual(t, "tree", readTree(t, dir), map[string]string{"a": "-rw-r--r-- old"})
}

// The event reports restored files. Before it is stored, they are durable: their contents and the names in every
// changed or created folder, also those that an earlier attempt restored.
func TestRestoreSyncsBeforeTheEvent(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	st := storetest.Faulty(t, func() logtest.Fault { note("publication"); return logtest.None })
	s, dir := errata.Of(st, "s"), t.TempDir()
	stop := durable.Watch(func(path string) {
		rel, err := filepath.Rel(dir, path)
		if err != nil || strings.HasPrefix(rel, "..") {
			return // not of this tree
		}
		if durable.IsTemporary(rel) {
			rel = filepath.Join(filepath.Dir(rel), "file")
		}
		note(filepath.ToSlash(rel))
	})
	defer stop()
	writeTree(t, dir, map[string]string{"top": "old", "in/deep/er": "old", "gone/x/y": "old", "same/z": "old"})
	applyRun(t, s, dir, "q", map[string]string{"top": "new", "in/deep/er": "new", "made/here": "new", "gone/x/y": "", "same/z": "new"})
	must(t, os.RemoveAll(filepath.Join(dir, "gone")))                 // its folders are created again
	writeTree(t, dir, map[string]string{"same/z": "old"})             // as after an attempt that died before its event
	for _, want := range []string{"rewind", "undo", "redo", "undo"} { // each restores all of them
		order = nil
		var err error
		switch want {
		case "rewind":
			mustRewind(t, s, errata.WorkTree{Dir: dir})
		case "undo":
			_, err = s.UndoRewind(t.Context(), errata.WorkTree{Dir: dir})
		case "redo":
			_, err = s.RedoRewind(t.Context(), errata.WorkTree{Dir: dir})
		}
		must(t, err)
		last := len(order) - 1 - slices.Index(reversed(order), "publication") // the event; blobs come before it
		for _, folder := range []string{".", "in/deep", "made", "same"} {
			if at := slices.Index(order, folder); at < 0 || at > last {
				t.Errorf("%s: the folder %s was not synced before the event: %v", want, folder, order)
			}
		}
		for _, folder := range []string{"gone/x", "gone"} {
			if at := slices.Index(order, folder); want == "rewind" && (at < 0 || at > last) {
				t.Errorf("%s: the created folder %s was not synced before the event: %v", want, folder, order)
			}
		}
		for i, what := range order {
			if strings.HasSuffix(what, "file") && (i > last || !slices.Contains(order[i:], strings.TrimSuffix(strings.TrimSuffix(what, "file"), "/")) && what != "file") {
				t.Errorf("%s: %s was synced after its folder, or after the event: %v", want, what, order)
			}
		}
	}
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// A rewind removes the files that a killed one left in the folders of its files. It keeps files that may be in use:
// files newer than this process, and files with other names.
func TestRestoreCleansUp(t *testing.T) {
	st := storetest.Open(t, "memory")
	s, dir := errata.Of(st, "s"), t.TempDir()
	writeTree(t, dir, map[string]string{"a": "old", "in/b": "old"})
	applyRun(t, s, dir, "q", map[string]string{"a": "new", "in/b": "new"})
	writeTree(t, dir, map[string]string{".tally-tmp-1": "left", "in/.tally-tmp-2": "left", "in/.tally-tmp-new": "being written", "in/x.tally-tmp-3": "mine", "other/.tally-tmp-4": "not touched"})
	old := time.Now().Add(-24 * time.Hour)
	for _, name := range []string{".tally-tmp-1", "in/.tally-tmp-2", "in/x.tally-tmp-3", "other/.tally-tmp-4"} {
		must(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	must(t, os.Mkdir(filepath.Join(dir, ".tally-tmp-folder"), 0o755))
	must(t, os.Chtimes(filepath.Join(dir, ".tally-tmp-folder"), old, old))
	must(t, os.Symlink("a", filepath.Join(dir, ".tally-tmp-link")))
	mustRewind(t, s, errata.WorkTree{Dir: dir})
	wantEqual(t, "tree", readTree(t, dir), map[string]string{"a": "-rw-r--r-- old", "in/b": "-rw-r--r-- old",
		"in/.tally-tmp-new": "-rw-r--r-- being written", "in/x.tally-tmp-3": "-rw-r--r-- mine", "other/.tally-tmp-4": "-rw-r--r-- not touched"})
	for _, name := range []string{".tally-tmp-folder", ".tally-tmp-link"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("a file that no rewind creates was removed: %v", err)
		}
	}
}

// killedRestore is the environment variable with the folder in which a copy of this test rewinds and undoes until it
// is killed.
const killedRestore = "TALLY_TEST_RESTORE"

// restoredFile returns a large content, so that a kill hits the write.
func restoredFile(n int, text string) string { return strings.Repeat(fmt.Sprint(text, n, " "), 40_000) }

// If a process is killed while it restores files, each file is complete, old or new. The next move finishes the work:
// the tree equals the log, without leftover files.
func TestRestoreIsKilled(t *testing.T) {
	if base := os.Getenv(killedRestore); base != "" {
		restoreUntilKilled(t, base)
		return
	}
	testkit.NotUnderRace(t) // a killed process reports no race
	const files = 6
	base := t.TempDir()
	dir := filepath.Join(base, "tree")
	st := openIn(t, base)
	s := errata.Of(st, "s")
	states := map[string]map[string]string{"old": {}, "new": {}}
	for state, content := range states {
		for n := range files {
			content[fmt.Sprintf("d%d/f", n%2)+fmt.Sprint(n)] = restoredFile(n, state)
		}
	}
	writeTree(t, dir, states["old"])
	applyRun(t, s, dir, "q", states["new"])
	must(t, st.Close())
	leftOver := 0
	kills := testkit.Times(10)
	for i := 0; i < kills || leftOver == 0 && i < 20*kills; i++ { // whether a kill hits a write depends on the machine
		killRestoring(t, base, 1+i%3, i%2 == 0)
		for name, have := range readTree(t, dir) {
			_, have, _ = strings.Cut(have, " ")
			switch {
			case strings.Contains(name, ".tally-tmp-"):
				leftOver++
				// The next process would begin later than this. Here the older parent continues.
				must(t, os.Chtimes(filepath.Join(dir, name), time.Unix(1, 0), time.Unix(1, 0)))
			case have != states["old"][name] && have != states["new"][name]:
				t.Fatalf("after kill %d: %s has neither the old nor the new content: %d bytes", i, name, len(have))
			}
		}
		st := openIn(t, base)
		s := errata.Of(st, "s")
		w := errata.WorkTree{Dir: dir}
		want := "old"
		if n := stackLen(t, s); n == 0 {
			_, err := s.UndoRewind(t.Context(), w)
			must(t, err)
			want = "new"
		} else {
			mustRewind(t, s, w)
		}
		have := readTree(t, dir)
		for name := range maps.Keys(have) {
			_, have[name], _ = strings.Cut(have[name], " ")
		}
		if !maps.Equal(have, states[want]) {
			t.Fatalf("after kill %d and the next move the tree does not have the %s content: %d files, %q", i, want, len(have), slices.Sorted(maps.Keys(have)))
		}
		must(t, st.Close())
	}
	if leftOver == 0 {
		t.Error("no kill interrupted the write of a file")
	}
}

func openIn(t *testing.T, base string) *tally.Store {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: filepath.Join(base, "store"), Backend: "local"})
	must(t, err)
	return st
}

// killRestoring lets a copy of this test rewind and undo, and kills it after some moves: at once, or while a file is
// written.
func killRestoring(t *testing.T, base string, moves int, writing bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRestoreIsKilled$")
	cmd.Env = append(os.Environ(), killedRestore+"="+base)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines, done := bufio.NewScanner(out), 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "moved") {
			if done++; done == moves {
				for temporary := 0; writing && temporary == 0; {
					list, err := filepath.Glob(filepath.Join(base, "tree", "*", ".tally-tmp-*"))
					must(t, err)
					temporary = len(list)
				}
				must(t, cmd.Process.Kill())
			}
		} else if strings.Contains(lines.Text(), "FAIL") {
			t.Errorf("the other process reports %s", lines.Text())
		}
	}
	_ = cmd.Wait() // it was killed
	if done < moves {
		t.Fatalf("the other process made %d moves", done)
	}
}

func restoreUntilKilled(t *testing.T, base string) {
	st := openIn(t, base)
	s := errata.Of(st, "s")
	w := errata.WorkTree{Dir: filepath.Join(base, "tree")}
	for {
		if stackLen(t, s) > 0 {
			mustRewind(t, s, w)
		} else {
			_, err := s.UndoRewind(t.Context(), w)
			must(t, err)
		}
		fmt.Println("moved")
	}
}
