package cmd_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// A path that is not a regular file is neither opened nor followed nor replaced, and is reported. A file that is too
// large is skipped. Names may be any bytes.
func TestTreeOdd(t *testing.T) {
	testkit.Long(t)
	t.Parallel() // the test mostly waits
	k := keepTree(t, "max_file = \"1MiB\"\n")
	k.putAll([]string{"a.txt", "linked.txt"}, func(string) string { return "text" })
	secret := filepath.Join(k.project, "secret")
	canary := testkit.Canary("secret")
	at := func(id string) string { return k.file(id) }
	if err := errors.Join(os.WriteFile(secret, []byte(canary), 0o600), syscall.Mkfifo(at("pipe"), 0o644), os.Symlink("../../secret", at("link")),
		os.Symlink(k.folder, at("round")), os.Symlink("/etc", at("etc")), os.Remove(at("linked.txt")), os.Symlink("../../secret", at("linked.txt"))); err != nil {
		t.Fatal(err)
	}
	odd := []string{"pipe", "link", "round", "etc", "linked.txt", "socket", "sparse"}
	if err := syscall.Mknod(at("null"), syscall.S_IFCHR|0o644, 1<<8|3); err == nil {
		odd = append(odd, "null")
	} else if os.Getuid() == 0 {
		t.Logf("devices cannot be created here: %v", err)
	}
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sparse, err := os.Create(at("sparse"))
	if err == nil {
		err = errors.Join(sparse.Truncate(1<<30), sparse.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a b.txt", "grün.txt", "new\nline.txt", "quote'\".txt", "-n.txt", "not\xffutf8.txt", "%2F.txt", "=.txt", strings.Repeat("l", 200) + ".txt"}
	from := k.head()
	for _, name := range names {
		k.write(name, name)
	}
	k.until("all names are taken in", func() bool {
		found := make(map[string]bool)
		for rec := range k.open().Log.Read(t.Context(), events.Range{After: from}) {
			found[string(rec.Data)] = true
		}
		for _, name := range names {
			if !found[name] {
				return false
			}
		}
		return true
	})
	k.until("all that is odd is said", func() bool {
		s, _ := k.status()
		said := make(map[string]bool)
		for _, p := range s.Skipped {
			said[strings.TrimPrefix(p.File, "docs/")] = true
		}
		for _, name := range odd {
			if !said[name] {
				return false
			}
		}
		return true
	})
	if err := k.put("linked.txt", "not through a link"); err == nil {
		t.Error("the status does not report a link in the place of a file")
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != canary {
		t.Errorf("a write through a link: got %q, %v", text, err)
	}
	for rec := range k.open().Log.Read(t.Context(), events.Range{}) {
		if strings.Contains(string(rec.Data), canary) {
			t.Errorf("%v: a link's target was imported", rec.Subject)
		}
	}
	for _, name := range odd {
		if _, err := os.Lstat(at(name)); err != nil {
			t.Errorf("an odd path was moved or removed: %v", err)
		}
	}
	if err := k.put("a.txt", "goes on"); err != nil {
		t.Error(err)
	}
	// After a rebuild without state, every name is found again, and nothing changes.
	from = k.head()
	if err := os.Remove(at("linked.txt")); err != nil {
		t.Fatal(err)
	}
	if out, code := k.tally("tree", "rebuild"); code != 0 {
		t.Errorf("rebuild: got %d, %s", code, out)
	}
	if out, code := k.tally("tree", "verify"); code != 0 && !strings.Contains(out, "sparse") {
		t.Errorf("verify: got %d, %s", code, out)
	}
	if n := k.taken(from); len(n) > 0 {
		t.Errorf("rebuild imported %v", n)
	}

	c := k.program(filepath.Join(bin, "tally"), "doc", "put", "doc/x.txt", filepath.Join(k.project, "tally.toml"), "--create", "--store", k.store+"-other")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), k.store) {
		t.Errorf("two stores in one folder: got %v, %s", err, out)
	}
	for what, store := range map[string]string{"the store is in the tree": filepath.Join(k.folder, "store"), "the tree is in the store": k.project} {
		c := k.program(filepath.Join(bin, "tally"), "ls", "--store", store)
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "one in the other") {
			t.Errorf("%s: got %v, %s", what, err, out)
		}
	}
}

// For TALLY_IDLE, by default a minute, an unchanged tree of ten thousand files costs almost no processor time beyond
// that of a process that serves as many documents without a tree, adds no record, and keeps no memory or handle.
func TestTreeIdle(t *testing.T) {
	testkit.OnlySoak(t)
	onDisk(t)
	const files = 10_000
	plain := newKept(t)
	plain.config("namespace = \"project\"\n")
	plain.fill(plain.keeps(), files, func(n int) (id, text string) {
		id = fmt.Sprintf("n%04d.txt", n-1)
		return id, id
	})
	k := keepTree(t, "mode = \"async\"\nbulk = \"never\"\n")
	for _, id := range numbered(files) {
		k.write0(id)
	}
	k.waits(10*time.Minute, 100*time.Millisecond, "all is taken in", func() bool { return k.state().Files == files })
	k.settled()
	head := k.head()
	k.stop(syscall.SIGTERM) // a process that has just imported all files is still releasing memory
	k.serve()
	plain.servePlain()
	time.Sleep(20 * time.Second) // the work after a start is done by then, and no other process runs
	length := figureTime(t, "TALLY_IDLE", time.Minute)
	memory := k.memory("VmRSS")
	open, watched := k.handles()
	before, woken := k.cost()
	plainBefore, plainWoken := plain.cost()
	began := time.Now()
	time.Sleep(length)
	after, wakes := k.cost()
	plainAfter, plainWakes := plain.cost()
	passed := time.Since(began)
	openAfter, watchedAfter := k.handles()
	share := func(used time.Duration) float64 { return 100 * float64(used) / float64(passed) }
	with, without := share(after-before), share(plainAfter-plainBefore)
	t.Logf("%d files for %v: %.3f %% of a core, without a tree %.3f %%: the tree %.3f %% (target 0.1)", files, length, with, without, with-without)
	t.Logf("wakes a second: %.1f of %d threads, without a tree %.1f of %d", float64(wakes-woken)/passed.Seconds(), k.threads(),
		float64(plainWakes-plainWoken)/passed.Seconds(), plain.threads())
	t.Logf("memory %d MB, then %d MB; handles %d, then %d; watches %d, then %d", memory>>20, k.memory("VmRSS")>>20, open, openAfter, watched, watchedAfter)
	if with-without > 0.1 {
		t.Errorf("got %.3f %% of a core for the tree", with-without)
	}
	if now := k.head(); now != head {
		t.Errorf("the log grew from %v to %v", head, now)
	}
	if openAfter > open || watchedAfter != watched {
		t.Errorf("handles grew from %d to %d, or watches from %d to %d", open, openAfter, watched, watchedAfter)
	}
}

func (k *kept) write0(id string) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(k.file(id)), 0o755), os.WriteFile(k.file(id), []byte(id), 0o644)); err != nil {
		k.t.Fatal(err)
	}
}

// cost is the processor time of the process that keeps the tree, and how often its threads waited.
func (k *kept) cost() (used time.Duration, waits int) {
	k.t.Helper()
	return costOf(k.t, k.serving.Process.Pid)
}

// costOf returns the processor time of a process, and how often its threads waited.
func costOf(t *testing.T, pid int) (used time.Duration, waits int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	var user, system int
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for line := range strings.Lines(string(text)) {
			var n int
			if _, err := fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &n); err == nil {
				waits += n
			}
		}
	}
	return time.Duration(user+system) * 10 * time.Millisecond, waits
}

func (k *kept) threads() int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", k.serving.Process.Pid))
	return len(tasks)
}
