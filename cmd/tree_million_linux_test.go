package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// A tree with very many files imports them at its start, and the next process that keeps it finds them again.
// TALLY_MILLION sets the number: a million takes hours and space, so the default is smaller.
func TestTreeMillion(t *testing.T) {
	testkit.OnlySoak(t)
	onDisk(t)
	const folders = 1000
	many := max(folders, figureNumber(t, "TALLY_MILLION", 200_000))
	k := newKept(t)
	k.says("mode = \"async\"\nbulk = \"never\"\n")
	id := func(i int) string { return fmt.Sprintf("d%03d/n%07d.txt", i%folders, i) }
	var all sync.WaitGroup
	for begin := range 8 {
		all.Go(func() {
			for folder := begin; folder < folders; folder += 8 {
				err := os.MkdirAll(filepath.Dir(k.file(id(folder))), 0o755)
				for i := folder; i < many && err == nil; i += folders {
					err = os.WriteFile(k.file(id(i)), []byte(id(i)), 0o644)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if all.Wait(); t.Failed() {
		return
	}
	start := func(what string, files int) {
		t.Helper()
		began := time.Now()
		k.serve()
		said := 0
		k.waits(6*time.Hour, 200*time.Millisecond, "all files are there", func() bool {
			s := k.state()
			if s.Error != "" || s.Asking != "" {
				t.Fatalf("got %+v", s)
			}
			if tenth := s.Files * 10 / files; tenth > said {
				said = tenth
				t.Logf("%d files after %v, %d MB", s.Files, time.Since(began).Round(time.Second), k.memory("VmRSS")>>20)
			}
			return s.Files == files
		})
		k.shows(10 * time.Minute)
		passed := time.Since(began)
		k.write(id(0), what)
		k.waits(30*time.Minute, 20*time.Millisecond, "a save is taken in", func() bool { text, _ := k.text(id(0)); return text == what })
		used, _ := k.cost()
		open, watched := k.handles()
		t.Logf("%s: %d files after %v (%.0f/s), the first save after %v; %v of the processor, peak %d MB, %d handles, %d watches", what, files,
			passed.Round(time.Millisecond), float64(files)/passed.Seconds(), time.Since(began).Round(time.Millisecond), used, k.memory("VmHWM")>>20, open, watched)
	}
	start("taken in", many)
	n := 0
	for info, err := range k.open().Subjects(t.Context(), "doc") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; info.Subject.ID == "" {
			t.Fatalf("got %+v", info)
		}
	}
	if n != many {
		t.Errorf("got %d documents, want %d", n, many)
	}
	k.stop(syscall.SIGTERM)
	start("found again", many)
	k.stop(syscall.SIGKILL)
	start("found again after a kill", many)
	if err := errors.Join(k.api.Close(), os.Remove(k.file(id(1)))); err != nil {
		t.Fatal(err)
	}
	k.api = nil
	k.waits(time.Minute, 20*time.Millisecond, "what is removed is deleted", func() bool { _, is := k.text(id(1)); return !is })
}
