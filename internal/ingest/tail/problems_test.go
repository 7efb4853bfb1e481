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
