package cmd_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// Reading a store on a read-only file system works. Nothing is written there, no lock is taken, and that is reported
// once. A writing command is refused, and the store stays unchanged.
func TestReadOnlyMedium(t *testing.T) {
	t.Parallel()
	t.Run("B-32 a store on read-only media", func(t *testing.T) {
		t.Parallel()
		testkit.Needs(t, os.Getuid() == 0, "root, to mount a directory")
		dir, mounted := filepath.Join(t.TempDir(), "store"), t.TempDir()
		output(t, strings.NewReader(`{"role":"user","content":"plum"}`), dir, "tally", "append", "s")
		output(t, strings.NewReader("one\n"), dir, "tally", "doc", "put", "--save", "doc/a")
		others, err := filepath.Glob(filepath.Join(os.TempDir(), "tally-read-only-*")) // left by killed processes
		if err != nil {
			t.Fatal(err)
		}
		looks := map[string]string{"ls": "plum", "show s": "plum", "search plum": "plum", "log s": "plum", "doc cat doc/a": "one", "doc ls": "doc/a", "doc log doc/a": "@2", "cost": "", "export s --format markdown": "plum", "verify": "match the log", "agent ls": ""}
		if !testkit.Full() {
			maps.DeleteFunc(looks, func(args, _ string) bool {
				return !slices.Contains([]string{"ls", "show s", "search plum", "doc cat doc/a", "verify"}, args)
			})
		}
		before := make(map[string]answer)
		for args := range looks {
			before[args] = ask(t, "", dir, strings.Fields(args)...)
		}
		files := stampsOf(t, dir)
		mustRun(t, "mount", "--bind", dir, mounted)
		defer mustRun(t, "umount", mounted)
		mustRun(t, "mount", "-o", "remount,ro,bind", mounted)
		for args, want := range looks {
			a := ask(t, "", mounted, strings.Fields(args)...)
			if a.code != before[args].code || !strings.Contains(a.out, want) || strings.Count(a.err, "WARN") > 1 {
				t.Errorf("%s: got code %d, want %d: %v", args, a.code, before[args].code, a)
			}
		}
		if a := ask(t, "", mounted, "status"); a.code != 7 || !strings.Contains(a.out, "read-only") || strings.Count(a.err, "WARN") != 1 {
			t.Errorf("status: got code %d: %v", a.code, a)
		}
		out := filepath.Join(t.TempDir(), "out")
		if a := ask(t, "", mounted, "export", "--all", "--format", "tallydir", "-C", out); a.code != 0 || strings.Count(a.err, "WARN") != 1 {
			t.Errorf("export: got code %d: %v", a.code, a)
		}
		for i, args := range []string{"doc put --save doc/b", "append s", "doc rm doc/a -y", "fork s --at #1", "quota store 5MiB", "rebuild"} {
			if !testkit.Plays(i, 2) {
				continue
			}
			if a := ask(t, `{"role":"user","content":"x"}`, mounted, strings.Fields(args)...); a.code != 7 || !strings.Contains(a.err, "read-only") || strings.Count(a.err, "WARN") > 1 {
				t.Errorf("%s: got code %d: %v", args, a.code, a)
			}
		}
		if now := stampsOf(t, dir); now != files {
			t.Errorf("the store was changed:\n%s\n%s", files, now)
		}
		left, err := filepath.Glob(filepath.Join(os.TempDir(), "tally-read-only-*"))
		left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(others, name) })
		if err != nil || len(left) > 0 {
			t.Errorf("got files left %v, %v", left, err)
		}
	})
}

// stampsOf lists the files of a folder with their sizes and times.
func stampsOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			b.WriteString(strings.Join([]string{path, info.ModTime().String(), info.Mode().String()}, " ") + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
