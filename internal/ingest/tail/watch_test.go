package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/testkit"
)

// watching relies on the system's events alone: all intervals are long.
func watching(o *Options) {
	o.MaxWatches, o.Now = 1<<20, time.Now
	o.Folders, o.Files, o.Poll = time.Hour, time.Hour, time.Hour
}

// await receives deliveries until a condition holds.
func (r *rig) await(what string, is func() bool) {
	r.t.Helper()
	r.open()
	ctx, cancel := context.WithTimeout(r.t.Context(), testkit.Patience(time.Minute))
	defer cancel()
	for !is() {
		b, err := r.tail.Next(ctx)
		if err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		r.take(b)
	}
}

func (r *rig) has(stem, want string) func() bool {
	return func() bool { d := r.docs[stem]; return d != nil && string(d.content) == want }
}

// Writes are delivered at once, also in new folders that already contain files.
func TestWatch(t *testing.T) {
	r := newRig(t, watching)
	r.write("a.jsonl", "1\n")
	r.await("the existing file", r.has("a", "1\n"))
	r.append("a.jsonl", "2\n")
	r.await("an append", r.has("a", "1\n2\n"))
	r.write("new/er/b.jsonl", "1\n")
	r.await("a file in a new folder", r.has("b", "1\n"))
	r.rename("new", "renamed")
	r.append("renamed/er/b.jsonl", "2\n")
	r.await("an append in a renamed folder", r.has("b", "1\n2\n"))
	r.write("new/er/c.jsonl", "1\n")
	r.await("a folder that was made again", r.has("c", "1\n"))
	r.append("renamed/er/b.jsonl", "3\n")
	r.await("another append in a renamed folder", r.has("b", "1\n2\n3\n"))
	if s := r.tail.Status(); s.Polled != 0 || s.Folders != 5 || s.Files != 3 || s.Live != 3 {
		t.Errorf("got %+v", s)
	}
}

// A missing root is followed when it appears, and its files are not reported as gone while it is missing.
func TestRootAppears(t *testing.T) {
	r := newRig(t, nil)
	must(t, os.Remove(r.dir))
	r.run()
	if s := r.tail.Status(); len(s.Missing) != 1 {
		t.Errorf("got %+v", s)
	}
	r.write("s/a.jsonl", "1\n")
	r.run()
	r.mustHave("a", "1\n")
	must(t, os.Rename(r.dir, r.dir+"2"))
	r.run()
	r.mustBe()
	must(t, os.Rename(r.dir+"2", r.dir))
	r.append("s/a.jsonl", "2\n")
	r.run()
	r.mustHave("a", "1\n2\n")
	if r.docs["a"].lines != 2 {
		t.Error("lines were delivered again")
	}
}

// If the system has no more watches, or drops events, deliveries are late but complete.
func TestWithoutWatches(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWatches = 2 })
	r.write("a/a.jsonl", "1\n")
	r.write("b/b.jsonl", "1\n")
	r.drain()
	if s := r.tail.Status(); s.Polled != 1 || s.Folders != 3 {
		t.Errorf("got %+v", s)
	}
	r.append("a/a.jsonl", "2\n")
	r.append("b/b.jsonl", "2\n")
	r.write("a/c.jsonl", "1\n")
	r.write("b/c2.jsonl", "1\n")
	for range 3 {
		r.now = r.now.Add(time.Second)
		r.drain()
	}
	want := map[string]string{"a": "1\n2\n", "b": "1\n2\n", "c": "1\n", "c2": "1\n"}
	for stem := range want { // the events of one folder may be late
		for n := 0; !r.has(stem, want[stem])() && n < 2000; n++ {
			time.Sleep(10 * time.Millisecond)
			r.drain()
		}
		r.mustHave(stem, want[stem])
	}
}

// After the system has dropped events, the tailer looks at all files.
func TestOverflow(t *testing.T) {
	r := newRig(t, nil)
	r.write("a/a.jsonl", "1\n")
	r.drain()
	r.append("a/a.jsonl", "2\n")
	r.write("a/b.jsonl", "1\n")
	r.drain()
	r.mustHave("a", "1\n")
	r.tail.onWatchError(fsnotify.ErrEventOverflow)
	r.drain()
	r.mustHave("a", "1\n2\n")
	r.mustHave("b", "1\n")
}

// A kicked file is read before others, even in an unknown folder. Paths outside the root and unwanted files are
// ignored.
func TestKick(t *testing.T) {
	r := newRig(t, nil)
	for i := range 20 {
		r.write(fmt.Sprintf("f%d.jsonl", i), "1\n")
	}
	r.drain()
	for i := range 20 {
		r.append(fmt.Sprintf("f%d.jsonl", i), "2\n")
	}
	r.write("new/er/k.jsonl", "1\n")
	for _, path := range []string{"/etc/passwd", r.path("new/er/k.jsonl"), r.path("../state/tail.state"), r.path("none/x"), r.dir, "", r.dir + "/../followed/f1.jsonl"} {
		r.tail.Kick(path)
	}
	var b *Batch
	for range 100 {
		if b == nil {
			b, _ = r.tail.step()
		}
	}
	if b == nil || b.File.Rel != "new/er/k.jsonl" {
		t.Fatalf("the first batch is %+v", b)
	}
	r.take(b)
	r.run()
	if len(r.docs) != 21 {
		t.Errorf("got %d files", len(r.docs))
	}
}

// After the delivery of all existing content, Next returns io.EOF.
func TestOnce(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Once = true })
	want := strings.Repeat("1\n", 3000)
	r.write("a/a.jsonl", want+"{}")
	r.write("a/b.jsonl.zst", pack(want))
	for range 2 {
		r.open()
		for {
			b, err := r.tail.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			r.take(b)
		}
		r.close()
	}
	r.mustHave("a", want+"{}")
	r.mustHave("b", want)
	if r.docs["a"].lines != 3001 || r.docs["b"].lines != 3000 {
		t.Error("lines were delivered again")
	}
	must(t, os.Remove(r.path("a/a.jsonl")))
	r.open()
	r.await("the removed file", func() bool { return len(r.events) > 0 })
	r.mustBe("gone a/a.jsonl")
}

// Only one process at a time uses the state. Only its owner may read it. Damage has the same effect as its loss.
func TestState(t *testing.T) {
	r := newRig(t, nil)
	r.write("a.jsonl", "1\n")
	r.run()
	if _, err := Open(Options{Roots: []Root{{r.dir, "r"}}, State: r.state}); !errors.Is(err, lockfile.ErrLocked) {
		t.Errorf("a second process with the same state: %v", err)
	}
	r.close()
	for _, path := range []string{r.state, r.state + ".lock"} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v, error %v", filepath.Base(path), info.Mode(), err)
		}
	}
	whole, err := os.ReadFile(r.state)
	must(t, err)
	for at := range whole {
		broken := append([]byte(nil), whole...)
		broken[at] ^= 1
		must(t, os.WriteFile(r.state, broken, 0o600))
		r.docs = make(map[string]*doc)
		r.open()
		r.drain()
		if d := r.docs["a"]; d != nil && string(d.content) != "1\n" || len(r.events) > 0 {
			t.Fatalf("a flipped bit at %d: %+v, %q", at, d, r.events)
		}
		r.kill()
	}
}
