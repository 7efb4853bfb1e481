//go:build unix

package tail

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// Of any entries in a folder, only regular files are read, and nothing blocks.
func TestOnlyRegularFiles(t *testing.T) {
	r := newRig(t, nil)
	outside := filepath.Join(filepath.Dir(r.dir), "outside")
	must(t, os.Mkdir(outside, 0o700))
	must(t, os.WriteFile(filepath.Join(outside, "secret.jsonl"), []byte("secret\n"), 0o600))
	must(t, os.Symlink(filepath.Join(outside, "secret.jsonl"), r.path("link.jsonl")))
	must(t, os.Symlink(outside, r.path("folder")))
	must(t, os.Symlink("loop.jsonl", r.path("loop.jsonl")))
	must(t, syscall.Mkfifo(r.path("fifo.jsonl"), 0o600))
	must(t, os.Mkdir(r.path("dir.jsonl"), 0o700))
	r.write("dir.jsonl/inside.jsonl", "1\n")
	r.write("a\nb\xff\x1b[2J.jsonl", "odd name\n")
	r.run()
	r.mustHave("inside", "1\n")
	r.mustHave("a\nb\xff\x1b[2J", "odd name\n")
	r.mustBe("unreadable fifo.jsonl")
	if len(r.docs) != 3 {
		t.Errorf("got %d files, want 2 and the FIFO", len(r.docs))
	}
	r.close()
	r.run()
	if r.docs["a\nb\xff\x1b[2J"].lines != 1 {
		t.Error("a file with an odd name was read again")
	}
}

// A file that is replaced by a symbolic link or a FIFO between its check and its opening is not read. Neither is a file
// whose folder is replaced by a link.
func TestSwapped(t *testing.T) {
	for name, swap := range map[string]func(t *testing.T, path, secret string){
		"link": func(t *testing.T, path, secret string) { must(t, os.Symlink(secret, path)) },
		"fifo": func(t *testing.T, path, _ string) { must(t, syscall.Mkfifo(path, 0o600)) },
		"link inside the root": func(t *testing.T, path, _ string) {
			must(t, os.WriteFile(path+".other", []byte("other file\n"), 0o600))
			must(t, os.Symlink(path+".other", path))
		},
		"folder": func(t *testing.T, path, secret string) {
			must(t, os.Remove(filepath.Dir(path)))
			must(t, os.Symlink(filepath.Dir(secret), filepath.Dir(path)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Wants = func(_, rel string) bool { return strings.HasSuffix(rel, "secret.jsonl") }
			})
			outside := filepath.Join(filepath.Dir(r.dir), "outside")
			must(t, os.Mkdir(outside, 0o700))
			secret := filepath.Join(outside, "secret.jsonl")
			must(t, os.WriteFile(secret, []byte("secret\n"), 0o600))
			r.write("s/secret.jsonl", "mine\n")
			r.open()
			r.tail.beforeOpen = func(path string) error {
				r.tail.beforeOpen = nil
				must(t, os.Remove(path))
				swap(t, path, secret)
				return nil
			}
			r.run()
			if d := r.docs["secret"]; d != nil && len(d.content) > 0 {
				t.Errorf("%q was read", d.content)
			}
		})
	}
}

// An unreadable file is reported once and in the status, and read as soon as possible.
func TestPermission(t *testing.T) {
	r := newRig(t, nil)
	r.write("a.jsonl", "1\n")
	must(t, os.Chmod(r.path("a.jsonl"), 0))
	r.open()
	r.tail.beforeOpen = func(path string) error { // for root, who may read everything
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() == 0 {
			return fs.ErrPermission
		}
		return nil
	}
	r.run()
	r.run()
	r.mustBe("unreadable a.jsonl")
	if s := r.tail.Status(); len(s.Unreadable) != 1 || s.Unreadable[0].Rel != "a.jsonl" {
		t.Errorf("the status is %+v", s)
	}
	must(t, os.Chmod(r.path("a.jsonl"), 0o600))
	r.run()
	r.mustHave("a", "1\n")
	if s := r.tail.Status(); len(s.Unreadable) != 0 {
		t.Errorf("the status is %+v", s)
	}
}

// Content that is much larger than its size on disk is not read, neither sparse nor compressed.
func TestBombs(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	r := newRig(t, nil)
	r.write("sparse.jsonl", "1\n")
	must(t, os.Truncate(r.path("sparse.jsonl"), 1<<40))
	r.write("bomb.jsonl.zst", pack(strings.Repeat("\x00", 200<<20)))
	r.write("torn.jsonl.zst", pack(text("torn", 100_000))[:1000])
	r.run()
	r.mustBe("unreadable bomb.jsonl.zst", "unreadable sparse.jsonl", "unreadable torn.jsonl.zst")
	r.write("torn.jsonl.zst", pack(text("torn", 100_000)))
	r.run()
	r.mustHave("torn", text("torn", 100_000))
}
