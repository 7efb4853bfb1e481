package tree

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// Each case does something, and returns a function that reports whether the tree has acted. The tree acts at exactly the
// end of the time, and not before.
func TestTimeBounds(t *testing.T) {
	imported := func(w *world, id, want string) func() bool {
		w.tree.Changed(id)
		return func() bool { return w.textOf(id) == want }
	}
	for name, c := range map[string]struct {
		bound time.Duration
		begin func(w *world) (acted func() bool)
	}{
		"a saved file is imported": {settle, func(w *world) func() bool {
			must(w.t, w.user.Put("a", "saved"))
			return imported(w, "a", "saved")
		}},
		"a large file is imported": {settleLarge, func(w *world) func() bool {
			text := strings.Repeat("x", large+1)
			must(w.t, w.user.Put("a", text))
			return imported(w, "a", text)
		}},
		"an emptied file is imported": {settleGone, func(w *world) func() bool {
			must(w.t, w.user.Put("a", ""))
			return imported(w, "a", "")
		}},
		"a removed file is imported": {settleGone, func(w *world) func() bool {
			must(w.t, w.user.Remove("a"))
			return imported(w, "a", "")
		}},
		"a file that is saved again is imported": {settle, func(w *world) func() bool {
			must(w.t, w.user.Put("a", "first"))
			w.tree.Changed("a")
			w.at(settle - time.Millisecond)
			must(w.t, w.user.Put("a", "saved"))
			return imported(w, "a", "saved")
		}},
		"a displaced file is removed": {linger, func(w *world) func() bool {
			w.revise("a", "of the log")
			must(w.t, w.runner.CatchUp(context.Background(), nil))
			return func() bool {
				for p := range w.user.Files() {
					if layouts.IsTemporary(p) {
						return false
					}
				}
				return true
			}
		}},
		"changes are imported although more are coming": {settle / 2, func(w *world) func() bool { return w.coming("n") }},
		"changes are imported although more are coming, again": {settle / 2, func(w *world) func() bool {
			w.coming("n")
			w.pass(5 * time.Second)
			return w.coming("m")
		}},
		"changes are imported although more are coming, when the last one came to nothing": {settle / 2, func(w *world) func() bool {
			w.saves(1000)
			w.pass(5 * time.Second)
			w.coming("n")
			w.at(settle / 2)
			w.saves(1000) // as the log has it
			w.pass(5 * time.Second)
			return w.coming("m")
		}},
	} {
		t.Run("net F1 "+name, func(t *testing.T) {
			for _, early := range []time.Duration{time.Millisecond, 0, -time.Millisecond} {
				w := newWorld(t, plainLand{}, nil, false)
				w.start()
				w.revise("a", "before")
				must(t, w.runner.CatchUp(context.Background(), nil))
				w.pass(5 * time.Second)
				acted := c.begin(w)
				if w.at(c.bound - early); acted() == (early > 0) {
					t.Errorf("%v before the end of %v, the tree has acted: %v", early, c.bound, acted())
				}
			}
		})
	}
}

// coming saves several new files, and then another file again and again, until just before the end of the time for which
// changes wait for more of them. It returns a function that reports whether the new files are imported.
func (w *world) coming(name string) func() bool {
	w.tree.c.BulkLimit = 50
	for n := range several + 1 {
		must(w.t, w.user.Put(fmt.Sprint(name, n), "new"))
		w.tree.Changed(fmt.Sprint(name, n))
	}
	w.at(settle / 2)
	w.saves(-1)
	w.at(settle / 2) // the others have settled
	for n := range int(together/(settle/2)) - 1 {
		w.saves(n)
		w.at(settle / 2)
	}
	w.saves(-2)
	return func() bool { return w.textOf(name+"0") == "new" }
}

// saves saves the file that changes all the time.
func (w *world) saves(n int) {
	must(w.t, w.user.Put("other", fmt.Sprint(n)))
	w.tree.Changed("other")
}

// at lets a time pass. The tree works whenever it wants to, as Run calls it.
func (w *world) at(d time.Duration) {
	for end := w.now.Add(d); ; {
		next := w.tree.Tick(context.Background(), w.now)
		select {
		case <-w.tree.wake:
			continue
		default:
		}
		if !w.now.Before(end) {
			return
		}
		if soon := w.now.Add(time.Millisecond); next.Before(soon) {
			next = soon
		}
		if w.now = end; next.Before(end) {
			w.now = next
		}
	}
}

// A removed file and a new one are one file that was renamed if the removal is imported in time.
func TestRenamedInTime(t *testing.T) {
	t.Run("net F1 a new file is the new name of a file that is removed in time", func(t *testing.T) {
		for _, early := range []time.Duration{time.Millisecond, 0, -time.Millisecond} {
			w := newWorld(t, plainLand{}, nil, false)
			w.start()
			w.revise("a", "text")
			must(t, w.runner.CatchUp(context.Background(), nil))
			w.pass(5 * time.Second)
			must(t, w.user.Rename("a", "b"))
			w.tree.Changed("b")
			w.at(settle)
			w.at(settleGone - early)
			w.tree.Changed("a")
			w.at(settleGone)
			last := need(w.st.Loader().History(context.Background(), events.Document(w.st.Namespace(), plainKind, "a"))).Last()
			if is := last.Reason == events.ReasonRenamed; is != (early >= 0) || !last.Deleted {
				t.Errorf("%v before the end of the time, the document was deleted for %q", early, last.Reason)
			}
		}
	})
}
