package tail

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tallylog/tally/internal/testkit"
)

func TestProblems(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	t.Run("net G2 a file that is missing for a moment at each read is read, and no problem", func(t *testing.T) {
		r, content := newRig(t, nil), ""
		r.open()
		isMissing := false
		r.tail.beforeOpen = func(string) error {
			if isMissing = !isMissing; isMissing {
				return fs.ErrNotExist
			}
			return nil
		}
		for range 3 * maxTries {
			content += "line\n"
			r.append("a.jsonl", "line\n")
			r.run()
			isMissing = false
		}
		r.mustHave("a", content)
		r.mustBe()
	})
	for _, name := range []string{"a.jsonl", "folder/a.jsonl"} {
		t.Run("net G1 the status has no problem of a file that is gone, "+name, func(t *testing.T) {
			r := newRig(t, nil)
			r.open()
			r.tail.beforeOpen = func(path string) error {
				if path == r.path(name) {
					return errors.New("it is locked")
				}
				return nil
			}
			r.write(name, "line\n")
			r.write("b.jsonl", "line\n")
			r.run()
			if s := r.tail.Status(); len(s.Unreadable) != 1 || s.Unreadable[0].Rel != name {
				t.Errorf("unreadable is %v, want %s", s.Unreadable, name)
			}
			must(t, os.RemoveAll(r.path(strings.SplitN(name, "/", 2)[0]))) // with its folder
			r.run()
			if s := r.tail.Status(); len(s.Unreadable) > 0 {
				t.Errorf("the file is gone, and unreadable is %v", s.Unreadable)
			}
			r.mustBe("unreadable " + name)
		})
	}
	t.Run("net G2 the growth of a file is noticed although its notification was dropped", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Files, o.Poll, o.Folders = 24*time.Hour, 24*time.Hour, 24*time.Hour })
		r.write("folder/a.jsonl", "one\n")
		r.drain()
		r.append("folder/a.jsonl", "two\n")
		r.tail.onWatchError(fsnotify.ErrEventOverflow)
		r.drain()
		r.mustHave("a", "one\ntwo\n")
	})
	t.Run("net G2 a folder whose listing fails a few times is listed when it can be", func(t *testing.T) {
		for _, isThere := range []bool{true, false} {
			for failures := range 5 {
				r := newRig(t, nil)
				r.write("folder/a.jsonl", "line\n")
				r.run()
				other, err := os.OpenRoot(t.TempDir()) // the folder is missing there
				must(t, err)
				defer other.Close()
				if isThere { // and there is another error
					must(t, other.Close())
				}
				r.write("folder/b.jsonl", "line\n")
				r.write("folder/new/c.jsonl", "line\n")
				root := r.tail.roots[0]
				whole := root.dir
				root.dir = other
				for range failures {
					r.now = r.now.Add(time.Minute)
					r.drain()
				}
				root.dir = whole
				r.run()
				r.mustHave("b", "line\n")
				r.mustHave("c", "line\n")
				if s := r.tail.Status(); len(s.Unreadable) > 0 {
					t.Errorf("after %d failures, unreadable is %v", failures, s.Unreadable)
				}
			}
		}
	})
	t.Run("net G5 a change with the time of the one before is noticed, also after a restart", func(t *testing.T) {
		for _, ends := range []func(r *rig){func(*rig) {}, (*rig).close, (*rig).kill} {
			r := newRig(t, nil)
			at := r.now
			r.write("a.jsonl", "one\n")
			must(t, os.Chtimes(r.path("a.jsonl"), at, at))
			r.drain()
			r.now = r.now.Add(time.Second)
			r.drain() // the state is saved
			r.mustHave("a", "one\n")
			ends(r)
			r.write("a.jsonl", "two\n")
			must(t, os.Chtimes(r.path("a.jsonl"), at, at))
			r.run()
			r.mustHave("a", "two\n")
			r.mustBe("rewritten a.jsonl")
		}
	})
	t.Run("net G5 the state has a file under its last path alone", func(t *testing.T) {
		r := newRig(t, nil)
		r.write("a.jsonl", "line\n")
		r.run()
		for _, move := range [][2]string{{"a.jsonl", "b/a.jsonl"}, {"b/a.jsonl", "c.jsonl"}, {"c.jsonl", "a.jsonl"}} {
			r.rename(move[0], move[1])
			r.run()
			r.now = r.now.Add(time.Minute)
			r.close()
			known, err := ReadState(r.state)
			must(t, err)
			var paths []string
			for p := range known["r"] {
				paths = append(paths, p)
			}
			if !slices.Equal(paths, []string{move[1]}) {
				t.Errorf("after the move of %s to %s, the state has %q", move[0], move[1], paths)
			}
		}
	})
}
