package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
)

// How long files take to follow the log, and the log to follow files, beside what others use for
// the same, in one run.
func TestTreeFigures(t *testing.T) {
	testkit.OnlySoak(t)
	text := func(n int) string { return fmt.Sprintf("%4096d", n) }
	open := func(k *kept) *tally.Store {
		for _, e := range k.env {
			if name, value, _ := strings.Cut(e, "="); name == "XDG_STATE_HOME" || name == "HOME" {
				t.Setenv(name, value)
			}
		}
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: k.project, Store: k.store, Trees: app.LiveLayout})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	save := func(st *tally.Store, id, text string) {
		t.Helper()
		if _, err := st.Documents().Save(t.Context(), "doc", id, tally.Write{Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(file, want string) bool {
		have, err := os.ReadFile(file)
		return err == nil && string(have) == want
	}
	measure := func(n int, what string, do func(n int)) {
		var list []time.Duration
		for i := range n {
			began := time.Now()
			do(i)
			list = append(list, time.Since(began))
		}
		slices.Sort(list)
		t.Logf("%-50s p50 %v p99 %v", what, list[n/2].Round(10*time.Microsecond), list[n*99/100].Round(10*time.Microsecond))
	}

	async := newKept(t)
	async.says("mode = \"async\"\nbulk = \"never\"\n")
	st := open(async)
	var acked time.Time
	var list []time.Duration
	for n := range 500 {
		save(st, "a.txt", text(n))
		acked = time.Now()
		for !has(async.file("a.txt"), text(n)) {
			time.Sleep(100 * time.Microsecond)
		}
		list = append(list, time.Since(acked))
		time.Sleep(5 * time.Millisecond)
	}
	slices.Sort(list)
	t.Logf("%-50s p50 %v p99 %v", "async: from the ack to the file, 4 KiB", list[250], list[495])
	list = nil
	for n := range 100 {
		file := async.file(fmt.Sprintf("s%d.txt", n))
		if err := os.WriteFile(file, []byte(text(n)), 0o644); err != nil {
			t.Fatal(err)
		}
		saved := time.Now()
		for {
			if doc, err := st.Documents().Read(t.Context(), "doc", filepath.Base(file)); err == nil && string(doc.Data) == text(n) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		list = append(list, time.Since(saved))
	}
	slices.Sort(list)
	t.Logf("%-50s p50 %v p99 %v", "from a saved file to its revision", list[50], list[98])
	st.Close()

	plain := newKept(t)
	plain.says("way = \"in\"\nmode = \"async\"\n")
	st = open(plain)
	measure(300, "durable append without a tree", func(n int) { save(st, "a.txt", text(n)) })
	measure(300, "write, fsync, fsync of the folder", func(n int) {
		f, err := os.Create(filepath.Join(plain.project, "x~"))
		if err == nil {
			_, err = f.WriteString(text(n))
		}
		if err == nil {
			err = f.Sync()
		}
		f.Close()
		if err == nil {
			err = os.Rename(filepath.Join(plain.project, "x~"), filepath.Join(plain.project, "x"))
		}
		if d, derr := os.Open(plain.project); err == nil && derr == nil {
			err = d.Sync()
			d.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	st.Close()
	synced := newKept(t)
	synced.says("")
	st = open(synced)
	measure(300, "append of a document in mode sync", func(n int) { save(st, "a.txt", text(n)) })
	st.Close()

	// A first mirror, and starts.
	const many = 100_000
	large := newKept(t)
	large.says("way = \"in\"\nmode = \"async\"\n")
	st = open(large)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 256 {
		all.Go(func() {
			for n := int(next.Add(1)); n <= many; n = int(next.Add(1)) {
				if _, err := st.Documents().Save(t.Context(), "doc", fmt.Sprintf("n%06d.txt", n), tally.Write{Data: []byte(text(n)[4000:])}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	st.Close()
	if err := os.RemoveAll(large.folder); err != nil {
		t.Fatal(err)
	}
	large.says("mode = \"async\"\n")
	start := func(what string) {
		began := time.Now()
		large.serve()
		up := time.Since(began)
		head := large.head()
		large.until("all is shown", func() bool { s, _ := large.status(); return s.Shown >= head && s.LagEvents == 0 })
		s, _ := large.status()
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", large.serving.Process.Pid))
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		peak, _, _ = strings.Cut(peak, "\n")
		t.Logf("%s: up after %v, %d files after %v, peak %s", what, up, s.Files, time.Since(began), strings.TrimSpace(peak))
	}
	start("first mirror")
	large.stop(syscall.SIGTERM)
	start("clean start")
	large.stop(syscall.SIGKILL)
	start("start after kill")
	large.stop(syscall.SIGTERM)
	measure(3, "rsync -a of it", func(n int) {
		large.run("rsync", "-a", large.folder+"/", filepath.Join(large.project, fmt.Sprint("copy", n)))
	})
}
