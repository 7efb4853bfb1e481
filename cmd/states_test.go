package cmd_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/testkit"
)

// The reading commands, each with another source: a list, the search, the log, the store itself.
var looks = []string{"ls", "search hello", "show last", "log --all-sessions", "status"}

// For each state of a store directory, reading commands print a sentence and end with a certain exit code. If the
// directory has no store that this program can open, nothing is created or changed.
func TestEveryStateOfAStore(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good")
	for _, id := range []string{"one", "two"} {
		output(t, strings.NewReader(strings.Repeat(`{"role":"user","content":"hello"}`+"\n", 20)), good, "tally", "append", id)
	}
	copied := func(t *testing.T, dir string) {
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
	}
	for n, c := range []struct {
		name  string
		make  func(t *testing.T, dir string)
		codes []int  // exit code of each command
		says  string // text that each command prints
		still bool   // whether the directory stays unchanged
	}{
		{"missing", func(*testing.T, string) {}, []int{0, 4, 4, 0, 0}, `there is no store in .*/store yet: the first append or import makes it`, true},
		{"empty", func(t *testing.T, dir string) { put(t, filepath.Join(dir, "lost+found", "x"), "") },
			[]int{0, 4, 4, 0, 0}, `/store is empty: the first append or import makes a store of it`, true},
		{"new", func(t *testing.T, dir string) { output(t, nil, dir, "tally", "append") }, []int{0, 4, 4, 0, 0}, ``, false},
		{"foreign", func(t *testing.T, dir string) { put(t, filepath.Join(dir, "letters", "a"), "dear") },
			[]int{7, 7, 7, 7, 7}, `/store is not a store: it holds letters; take a directory that is empty or not there yet`, true},
		{"a nats-server's", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "jetstream", "$G", "streams", "ORDERS", "meta.inf"), "{}")
		},
			[]int{7, 7, 7, 7, 7}, `/store is the directory of a nats-server, not of a store: reach that server with --server`, true},
		{"a file", func(t *testing.T, dir string) { put(t, dir, "dear") }, []int{7, 7, 7, 7, 7}, `/store is a file: want the directory of a store`, true},
		{"locked by one that does not say where it serves", func(t *testing.T, dir string) {
			copied(t, dir)
			put(t, filepath.Join(dir, "owner.json"), "{")
			lock, err := lockfile.Take(filepath.Join(dir, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { lock.Close() })
		}, []int{7, 7, 7, 7, 7}, `another process owns the store in .*/store, and its address is unknown: owner.json cannot be read`, true},
		{"newer", func(t *testing.T, dir string) {
			copied(t, dir)
			put(t, filepath.Join(dir, "mark"), `{"version":2}`)
		}, []int{8, 8, 8, 8, 8}, `a newer version of tally wrote the store in .*/store \(mark has version 2, this program knows 1\): use that version`, true},
		{"newer damage", func(t *testing.T, dir string) {
			copied(t, dir)
			put(t, filepath.Join(dir, "damaged", "holes.json"), `{"version":2}`)
		}, []int{8, 8, 8, 8, 8}, `a newer version of tally wrote the store .*holes.json`, true},
		{"damaged", func(t *testing.T, dir string) {
			copied(t, dir)
			block, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "TALLY_1", "msgs", "1.blk"))
			if err != nil || len(block) != 1 {
				t.Fatal(block, err)
			}
			info, err := os.Stat(block[0])
			if err == nil {
				err = os.Truncate(block[0], info.Size()/2)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = command(t.Context(), dir, "tally", "status").Run() // opening the store finds the damage
		}, []int{0, 0, 5, 5, 5}, `2[01] records .*cannot be read|damaged record @40|(?m)^damage +2[01] records lost`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			dir := filepath.Join(home, "store")
			c.make(t, dir)
			before := paths(t, home)
			for i, args := range looks {
				if !testkit.Plays(i+n, 2) {
					continue
				}
				cmd := command(t.Context(), dir, "tally", strings.Fields(args)...)
				var out, errw bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errw
				if code := codeOf(t, cmd.Run()); code != c.codes[i] {
					t.Errorf("%s: got exit code %d, want %d\n%s%s", args, code, c.codes[i], out.String(), errw.String())
				}
				if said := out.String() + errw.String(); !regexp.MustCompile(c.says).MatchString(said) {
					t.Errorf("%s: got %q, want %q", args, said, c.says)
				}
				if strings.Contains(out.String()+errw.String(), "there is no view") {
					t.Errorf("%s: got a message about views:\n%s%s", args, out.String(), errw.String())
				}
			}
			if now := paths(t, home); c.still && now != before {
				t.Errorf("the directory changed:\n%s\nbefore:\n%s", now, before)
			}
		})
	}
}

// A misspelled path does not make a store of another directory.
func TestForeignDirectoryIsNotMadeAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	put(t, filepath.Join(dir, "letters", "a"), "dear")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := command(t.Context(), dir, "tally", "append", "s")
	cmd.Stdin = strings.NewReader(`{"role":"user"}`)
	if code := codeOf(t, cmd.Run()); code != 7 {
		t.Errorf("got exit code %d, want 7", code)
	}
	if got := paths(t, dir); got != ".\nletters\nletters/a" {
		t.Errorf("the directory: got:\n%s", got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}
