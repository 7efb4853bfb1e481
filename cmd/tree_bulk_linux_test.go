package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// A mass change is not imported, and its files are not overwritten, until somebody decides.
func TestTreeBulk(t *testing.T) {
	testkit.OnlyFull(t, "TestBulk of internal/tree has the same questions")
	testkit.Long(t)
	t.Parallel() // the test mostly waits
	many := 150
	if testkit.Soak() {
		many = 1000
	}
	k := keepTree(t, "")
	ids := numbered(60)
	k.putAll(ids, func(id string) string { return id })
	k.run("git", "init", "-q", "-b", "main")
	k.run("git", "add", ".")
	k.run("git", "commit", "-qm", "first")
	if err := os.WriteFile(filepath.Join(k.project, "other"), []byte(k.others(many)), 0o600); err != nil {
		t.Fatal(err)
	}
	k.run("bash", "-c", "git fast-import --quiet < ../other")

	// asks checks that the tree waits for an answer: no edit is imported, and a writer gets an error.
	asks := func(what string) {
		t.Helper()
		from := k.head()
		k.until(what+": it asks", func() bool { s, code := k.status(); return s.Asking != "" && code == 6 })
		if _, code := k.tally("status"); code != 6 {
			t.Errorf("%s: status: got exit code %d", what, code)
		}
		err := k.put("n0000.txt", what)
		if _, told := errors.AsType[*events.TreeError](err); !told {
			t.Errorf("%s: append: got %v", what, err)
		}
		if n := k.taken(from); len(n) > 0 {
			t.Errorf("%s: got %d changed documents, want 0", what, len(n))
		}
	}
	// restored fails unless the files equal the log's content.
	restored := func(what string) {
		t.Helper()
		if out, code := k.tally("tree", "restore"); code != 0 {
			t.Fatalf("%s: restore: got exit code %d: %s", what, code, out)
		}
		if got, err := os.ReadFile(k.file("n0000.txt")); err != nil || string(got) != what {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
		if out, code := k.tally("tree", "verify"); code != 0 {
			t.Errorf("%s: got %s", what, out)
		}
		if s, code := k.status(); code != 0 || s.Files != len(ids) || s.Conflicts != 0 {
			t.Errorf("%s: got %+v", what, s)
		}
		if err := k.put("n0000.txt", "n0000.txt"); err != nil {
			t.Error(err)
		}
	}
	t.Run("git checkout", func(t *testing.T) {
		k.run("git", "checkout", "-q", "other")
		before := k.stamps()
		asks("checkout")
		for p, stamp := range k.stamps() {
			if before[p] != stamp && !strings.HasPrefix(p, ".git/") {
				t.Fatalf("%s was rewritten", p)
			}
		}
		restored("checkout")
	})
	t.Run("git checkout and back", func(t *testing.T) {
		testkit.OnlyFull(t, "other subtests change as much")
		k.run("git", "checkout", "-qf", "other")
		asks("back")
		k.run("git", "checkout", "-qf", "main")
		k.until("it asks no more", func() bool { s, code := k.status(); return s.Asking == "" && code == 0 })
		if err := k.put("n0000.txt", "n0000.txt"); err != nil {
			t.Error(err)
		}
		k.isClean()
	})
	t.Run("rm -rf *", func(t *testing.T) {
		k.run("bash", "-c", "rm -rf *")
		asks("rm")
		restored("rm")
	})
	for what, replace := range map[string]bool{"a folder that is moved away": false, "a folder in place of which another one is": true} {
		t.Run(what, func(t *testing.T) {
			if replace {
				testkit.OnlyFull(t, "other subtests change as much")
			}
			away := filepath.Join(k.project, "away")
			if err := os.Rename(k.folder, away); err != nil {
				t.Fatal(err)
			}
			if replace {
				if err := errors.Join(os.MkdirAll(filepath.Join(k.folder, "docs"), 0o755), os.WriteFile(k.file("other.txt"), []byte("of another folder"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			asks(what)
			if got, err := os.ReadFile(filepath.Join(away, "docs", "n0000.txt")); err != nil || string(got) != "n0000.txt" {
				t.Errorf("the moved folder: got %q, %v", got, err)
			}
			if list, err := os.ReadDir(filepath.Dir(k.file("x"))); replace && (err != nil || len(list) != 1) {
				t.Errorf("the other folder: got %v, %v", list, err)
			}
			restored(what)
			k.write("after.txt", "seen")
			k.until("what is written there is taken in", func() bool { _, is := k.text("after.txt"); return is })
			k.remove("after.txt")
			k.until("what is removed there is deleted", func() bool { _, is := k.text("after.txt"); return !is })
			if err := os.RemoveAll(away); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("a mount that comes back", func(t *testing.T) {
		testkit.OnlyFull(t, "other subtests change as much")
		away := filepath.Join(k.project, "away")
		if err := os.Rename(k.folder, away); err != nil {
			t.Fatal(err)
		}
		asks("mount")
		if err := os.Rename(away, k.folder); err != nil {
			t.Fatal(err)
		}
		k.until("it asks no more", func() bool { s, code := k.status(); return s.Asking == "" && code == 0 })
		if err := k.put("n0000.txt", "n0000.txt"); err != nil {
			t.Error(err)
		}
		k.settled()
	})
	t.Run("accept", func(t *testing.T) {
		k.run("git", "init", "-q", "-b", "main")
		k.run("bash", "-c", "git fast-import --quiet < ../other; git checkout -qf other")
		k.run("git", "clean", "-qfd")
		asks("accept")
		if out, code := k.tally("tree", "accept"); code != 0 {
			t.Fatalf("accept: got exit code %d: %s", code, out)
		}
		s, code := k.status()
		if code != 0 || s.Files != many+1 || s.Conflicts != 0 { // including the document that was appended meanwhile
			t.Errorf("got %+v, %d", s, code)
		}
		if got, is := k.text("o0099.txt"); !is || got != "other 99" {
			t.Errorf("got %q, %v", got, is)
		}
	})
}

// others writes a branch with only n files, for git fast-import.
func (k *kept) others(n int) string {
	var b strings.Builder
	b.WriteString("commit refs/heads/other\ncommitter a <a@x> 1 +0000\ndata 1\nx\ndeleteall\n")
	for i := range n {
		text := fmt.Sprintf("other %d", i)
		fmt.Fprintf(&b, "M 644 inline docs/o%04d.txt\ndata %d\n%s\n", i, len(text), text)
	}
	return b.String()
}
