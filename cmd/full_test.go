//go:build linux

package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally/internal/testkit"
)

// On a full disk appends are refused, and all else continues: views and snapshots leave the reserve free, and a
// process that starts when no byte is free reads as always. With free space again, appends work.
func TestFullDiskIsRead(t *testing.T) {
	testkit.OnlyFull(t, "TestFullDiskIsReportedOnce fills a disk")
	testkit.Long(t)
	t.Parallel()
	testkit.Needs(t, os.Getuid() == 0, "root, to mount a file system")
	image := filepath.Join(t.TempDir(), "image")
	mustRun(t, "truncate", "-s", "140M", image)
	mustRun(t, "mkfs.ext4", "-q", "-F", "-m", "0", image)
	disk, unmount := mount(t, image)
	defer unmount()
	mustRun(t, "fallocate", "-l", "24M", filepath.Join(disk, "before")) // the rest of the disk fills up sooner
	store := filepath.Join(disk, "store")
	const left = 30 << 20 // less than half of the reserve
	free := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bavail * uint64(st.Bsize)
	}
	run := func(in string, args ...string) (string, int) {
		c := command(t.Context(), store, "tally", args...)
		var out bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader(in), &out, &out
		err := c.Run()
		return out.String(), codeOf(t, err)
	}
	// Words that search keeps, so that its view grows with the log.
	var turns strings.Builder
	for i := range 60 {
		fmt.Fprintf(&turns, `{"role":"user","content":"%s"}`+"\n", strings.Repeat(fmt.Sprintf("w%dx%d ", i, i*7919), 3000))
	}
	code, acked := 0, 0
	for i := 0; code == 0; i++ {
		var out string
		if out, code = run(turns.String(), "append", fmt.Sprintf("s%d", i), "-o", "jsonl"); i > 200 {
			t.Fatalf("the disk does not fill up: %s", out)
		}
		acked += strings.Count(out, `"offset"`)
	}
	if code != 7 {
		t.Errorf("an append on a full disk: got code %d, want 7", code)
	}
	looks := [][]string{{"ls"}, {"show", "s0", "--last", "1"}, {"log", "s0", "-o", "jsonl"}, {"search", "w1x7919", "--limit", "1"}, {"status"}, {"verify"}, {"ls"}}
	look := func(when string) {
		t.Helper()
		for _, args := range looks {
			out, code := run("", args...)
			if args[0] == "verify" && code == 7 && strings.Contains(out, "no space left") {
				continue // the command cannot read the views
			}
			want := 0
			if args[0] == "status" {
				want = 7 // nothing can be appended
			}
			if code != want {
				t.Errorf("%s: %s: got code %d: %s", when, args[0], code, out)
			}
		}
	}
	look("full")
	if n := free(); n < 24<<20 {
		t.Errorf("got %d MiB free: views or snapshots used the reserve", n>>20)
	}
	// Lost views are not rebuilt from the reserve.
	views := []string{"views.db", "views.db-wal", "views.db-shm", "search.db", "search.db-wal", "search.db-shm", "work.db", "work.db-wal", "work.db-shm"}
	aside := filepath.Join(disk, "aside")
	move := func(from, to string) {
		t.Helper()
		for _, name := range views {
			if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	filler := filepath.Join(disk, "filler")
	if err := os.Mkdir(aside, 0o700); err != nil {
		t.Fatal(err)
	}
	move(store, aside)
	mustRun(t, "fallocate", "-l", fmt.Sprint(free()-left), filler)
	for _, args := range [][]string{{"ls"}, {"search", "w1x7919", "--limit", "1"}, {"show", "s0", "--last", "1"}} {
		if out, code := run("", args...); code != 0 {
			t.Errorf("half of the reserve is left: %s: got code %d: %s", args[0], code, out)
		}
	}
	if n := free(); n < left-(1<<20) {
		t.Errorf("of %d MiB: got %d free: views used the reserve", left>>20, n>>20)
	}
	move(aside, store)
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for block := make([]byte, size); ; {
			if _, err := f.Write(block); err != nil {
				break
			}
		}
	}
	if n := free(); n > 4096 {
		t.Fatalf("got %d bytes free", n)
	}
	look("not a byte free")
	if out, code := run(`{"role":"user","content":"x"}`, "append", "s0"); code != 7 {
		t.Errorf("an append: got code %d: %s", code, out)
	}
	for _, name := range views {
		if err := os.Remove(filepath.Join(store, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_ = exec.Command("cp", "/dev/zero", filepath.Join(disk, "more")).Run() // ends when nothing is left
	for _, args := range [][]string{{"ls"}, {"search", "w1x7919", "--limit", "1"}} {
		if out, code := run("", args...); code != 0 {
			t.Errorf("without views: %s: got code %d: %s", args[0], code, out)
		}
	}
	for _, name := range []string{ballast, filler, filepath.Join(disk, "more")} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "sync", "-f", disk)
	if out, code := run(`{"role":"user","content":"again"}`, "append", "again"); code != 0 {
		t.Errorf("with free space again, an append: got code %d: %s", code, out)
	}
	if out, code := run("", "verify"); code != 0 {
		t.Errorf("verify: got code %d: %s", code, out)
	}
	if out, _ := run("", "log", "again", "-o", "jsonl"); strings.Count(out, "\n") < 1 {
		t.Errorf("the last append: got %s", out)
	}
	t.Logf("%d events were acknowledged before the disk was full", acked)
}

// On a full disk a reading command answers, and reports the disk in one line. Status says that appends are refused,
// and why.
func TestFullDiskIsReportedOnce(t *testing.T) {
	t.Run("B-27 one line, and the status says that appends are refused", func(t *testing.T) {
		testkit.Needs(t, os.Getuid() == 0, "root, to mount a file system")
		disk := t.TempDir()
		mustRun(t, "mount", "-t", "tmpfs", "-o", "size=100m", "tally-test", disk)
		defer mustRun(t, "umount", disk)
		store := filepath.Join(disk, "store")
		for _, stdin := range []string{"one", "two"} {
			output(t, strings.NewReader(stdin), store, "tally", "doc", "put", "--save", "doc/a")
		}
		output(t, strings.NewReader(`{"role":"user","content":"plum"}`), store, "tally", "append", "s")
		if a := ask(t, "", store, "status"); a.code != 0 || strings.Contains(a.out, "refused") {
			t.Fatalf("with free space: got code %d: %v", a.code, a)
		}
		mustRun(t, "fallocate", "-l", "50M", filepath.Join(disk, "half"))
		status := func(when string) {
			t.Helper()
			a := ask(t, "", store, "status")
			if a.code != 7 || !strings.Contains(a.out, "refused: store full") || strings.Contains(a.out, "acks are") || strings.Count(a.err, "\n") > 1 {
				t.Errorf("%s: got code %d: %v", when, a.code, a)
			}
			if a := ask(t, "", store, "status", "-o", "json"); a.code != 7 || !strings.Contains(a.out, `"refused": "store full`) {
				t.Errorf("%s: got code %d: %v", when, a.code, a)
			}
		}
		status("in the reserve")
		_ = exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(disk, "all"), "bs=1M").Run() // ends when nothing is left
		status("not a byte free")
		looks := map[string]string{"ls": "plum", "doc ls": "doc/a", "doc cat doc/a": "two", "doc log doc/a": "@1", "search plum": "plum"}
		check := func(when string) {
			t.Helper()
			for args, want := range looks {
				a := ask(t, "", store, strings.Fields(args)...)
				lines := strings.Split(strings.TrimSpace(strings.NewReplacer("as of @3", "", "times are in UTC\n", "").Replace(a.err)), "\n")
				if a.code != 0 || !strings.Contains(a.out, want) || len(lines) != 1 {
					t.Errorf("%s: %s: got code %d, %d lines: %v", when, args, a.code, len(lines), a)
				}
			}
		}
		check("with views")
		views, err := filepath.Glob(filepath.Join(store, "*.db*"))
		if err != nil || len(views) == 0 {
			t.Fatal(views, err)
		}
		for _, path := range views {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		check("without views")
	})
}
