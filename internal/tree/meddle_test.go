package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/schedule"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
)

// synced is a storage that knows which folders a tree has changed and not synced since.
type synced struct {
	storagetest.Whole
	left map[string]bool
}

func (s *synced) Swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (string, error) {
	s.left[folder(name)] = true
	return s.Whole.Swap(ctx, name, mode, content)
}

func (s *synced) Displace(ctx context.Context, name string) (string, error) {
	s.left[folder(name)] = true
	return s.Whole.Displace(ctx, name)
}

func (s *synced) Sync(ctx context.Context, folders ...string) error {
	for _, f := range folders {
		delete(s.left, f)
	}
	return s.Whole.Sync(ctx, folders...)
}

// disturbedTarget is a store on which an append of the tree fails.
type disturbedTarget struct {
	*tally.Store
	n, at int // appends so far, and the one that fails
	how   appendFault
	w     *world
}

// An appendFault is a way in which an append fails.
type appendFault int

const (
	overtaken   appendFault = iota // by another program's revision
	unavailable                    // nothing is stored
	unanswered                     // it is stored
)

func (f appendFault) String() string { return [...]string{"overtaken", "unavailable", "unanswered"}[f] }

// disturb makes an append, which may fail.
func (d *disturbedTarget) disturb(sub events.Subject, do func() error) error {
	if d.n++; d.n != d.at {
		return do()
	}
	d.w.faults++
	d.w.say("  the append to %v is %v", sub, d.how)
	switch d.how {
	case overtaken:
		if sub.Kind == plainKind {
			d.w.says(sub.ID, "of another program")
		}
		return do()
	case unavailable:
		return log.ErrUnavailable
	}
	if err := do(); err != nil {
		return err
	}
	return log.ErrUnknown
}

// Append implements layouts.Target.
func (d *disturbedTarget) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (ack log.Ack, err error) {
	err = d.disturb(sub, func() (err error) { ack, err = d.Store.Append(ctx, sub, expect, evs...); return err })
	return ack, err
}

// planned is a world whose story is always the same, so that a test can disturb it at each point and at each call.
func planned(t testing.TB) *world {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched, w.wild = true, true
	w.struck, w.meddled = make(map[string]int), make(map[string]bool)
	w.storage = &synced{w.storage, make(map[string]bool)}
	return w
}

// says appends a revision of a document, like another program.
func (w *world) says(id, text string) {
	w.say("log: write %s: %q", id, text)
	w.revised[id+"\x00"+text] = w.revise(id, text)
}

// forgets deletes a document, like another program.
func (w *world) forgets(id string) {
	w.say("log: delete %s", id)
	sub := events.Document(w.st.Namespace(), plainKind, id)
	last := need(w.st.Log.Last(context.Background(), sub)).Offset
	need(w.st.Append(context.Background(), sub, log.At(last), need(events.New("urn:api", sub, &events.DocumentDeleted{Reason: "api"}))))
}

// puts writes a file, like an editor.
func (w *world) puts(p, text string) {
	w.leave(p)
	w.changes++
	w.say("file: write %s: %q", p, text)
	must(w.t, w.user.Put(p, text))
	w.wrote(p, text, text)
	w.untold = true
}

// story has each kind of work of a tree: new, replaced, grown and removed files, edits, and edits that conflict. disturb
// is called when it begins.
func (w *world) story(disturb func()) {
	for _, id := range []string{"a", "b", "d/a", "d/b"} {
		w.says(id, "first "+id)
	}
	w.says("x.jsonl", "1\n")
	w.start()
	w.project()
	w.pass(3 * time.Second)
	disturb()
	w.says("a", "second")
	w.says("x.jsonl", "1\n2\n")
	w.says("d/e/a", "new")
	w.forgets("d/b")
	w.shows()
	w.pass(3 * time.Second)
	w.puts("b", "edited")
	w.puts("d/n", "a new file")
	w.tell()
	w.pass(3 * time.Second)
	w.puts("a", "refused")
	w.says("a", "third")
	w.shows()
	w.pass(3 * time.Second)
	w.leave("d/a")
	w.changes++
	_ = w.user.Remove("d/a") // it may be gone
	w.tell()
	w.pass(3 * time.Second)
}

// shows updates the files to the log, and checks that what counts as shown is shown.
func (w *world) shows() {
	if w.project(); w.tree == nil {
		return
	}
	ctx := context.Background()
	if w.tree.cursor.Offset < need(w.st.Log.Durable(ctx)) {
		return
	}
	if s, is := w.storage.(*synced); is && len(s.left) > 0 {
		w.t.Errorf("F2: the tree shows the log, but %v was not synced", slices.Sorted(maps.Keys(s.left)))
	}
	for info, err := range w.st.Subjects(ctx, plainKind) {
		must(w.t, err)
		id := info.Subject.ID
		if w.written[id] != nil || w.meddled[id] || w.tree.Problem(ctx, info.Subject) != nil {
			continue
		}
		if is, want := w.user.Files()[id], w.textOf(id); is != want {
			w.t.Errorf("F2: %s counts as shown and has %q, want %q", id, is, want)
		}
	}
}

// ends lets the world come to rest, and checks the laws.
func (w *world) ends() {
	w.rest()
	w.check()
	if s, is := w.storage.(*synced); is && len(s.left) > 0 {
		w.t.Errorf("F2: at rest %v is not synced", slices.Sorted(maps.Keys(s.left)))
	}
	if w.t.Failed() {
		for _, line := range w.trace {
			w.t.Log(line)
		}
	}
}

// tells checks that the log has what programs and the user said, and nothing of the tree's own.
func (w *world) tells() {
	for id, want := range map[string]string{"a": "third", "b": "edited", "d/a": "", "d/b": "", "d/e/a": "new", "d/n": "a new file", "x.jsonl": "1\n2\n"} {
		if is := w.textOf(id); is != want {
			w.t.Errorf("F2: the document %s is %q, want %q", id, is, want)
		}
	}
}

// deeds are what a user does to a file while the tree works.
var deeds = map[string]func(w *world, p string) (text string, err error){
	"writes": func(w *world, p string) (string, error) { return "written", w.user.Put(p, "written") },
	"writes as much": func(w *world, p string) (string, error) {
		text := sameSize(w.user.Files()[p])
		return text, w.user.Put(p, text)
	},
	"appends": func(w *world, p string) (string, error) {
		return w.user.Files()[p] + "more\n", w.user.Append(p, "more\n")
	},
	"renames a file over": func(w *world, p string) (string, error) {
		return "renamed", errors.Join(w.user.Put(p+"~", "renamed"), w.user.Rename(p+"~", p))
	},
	"moves away": func(w *world, p string) (string, error) { return "", w.user.Rename(p, "moved-"+path.Base(p)) },
	"deletes":    func(w *world, p string) (string, error) { return "", w.user.Remove(p) },
}

// sameSize returns another text of the same size.
func sameSize(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c >= 'a' && c < 'z' || c >= '1' && c < '9' {
			b[i] = c + 1
		}
	}
	return string(b)
}

// meddles lets the user do something to a file.
func (w *world) meddles(deed, p string) {
	w.say("  the user %s %s", deed, p)
	w.leave(p)
	w.changes += 2
	w.untold = true
	w.meddled[p], w.meddled["moved-"+path.Base(p)] = true, true
	text, err := deeds[deed](w, p)
	if err != nil {
		w.say("  %v", err)
		return
	}
	if text != "" {
		w.wrote(p, text, text)
	}
}

func TestMeddling(t *testing.T) {
	for _, deed := range slices.Sorted(maps.Keys(deeds)) {
		for _, p := range []string{"a", "b", "x.jsonl", "d/b", "d/e/a"} {
			t.Run(fmt.Sprintf("net F1 the user %s %s at any point", deed, p), func(t *testing.T) {
				testkit.Sample(t, 3)
				schedule.Each(t, func(t *testing.T, points *schedule.Points) {
					w := planned(t)
					w.story(func() {
						reached = points.Reached
						points.Do(func() { w.meddles(deed, p) })
					})
					w.ends()
				})
			})
		}
	}
}

// swellingLand has a layout that knows each change of a document, whatever the tree showed before.
type swellingLand struct{ plainLand }

func (swellingLand) layout() layouts.Layout { return swellingLayout{} }

type swellingLayout struct{ plainLayout }

// Growth implements layouts.Grower.
func (swellingLayout) Growth(ctx context.Context, src layouts.Source, _ layouts.Root, entry events.Subject, at string, _ events.Offset, _ []events.Subject, _ any) (layouts.Growth, bool, error) {
	doc, err := src.Loader().Document(ctx, entry, 0)
	return layouts.Growth{Added: []layouts.Addition{{Path: at, Data: doc.Data, New: true, Mode: 0o644}}}, err == nil, err
}

// moodyLand has a layout that sometimes fails to render.
type moodyLand struct {
	plainLand
	fails func() bool
}

func (l moodyLand) layout() layouts.Layout { return moodyLayout{fails: l.fails} }

type moodyLayout struct {
	plainLayout
	fails func() bool
}

func (l moodyLayout) EntryFiles(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject, at string) iter.Seq2[layouts.File, error] {
	if !l.fails() {
		return l.plainLayout.EntryFiles(ctx, src, root, sub, at)
	}
	return func(yield func(layouts.File, error) bool) { yield(layouts.File{Path: at}, errors.New("out of memory")) }
}

func TestFailingCalls(t *testing.T) {
	t.Run("net F2 every call of the storage fails once", func(t *testing.T) {
		play := func(n int, how storagetest.Fault) (calls int) {
			w := planned(t)
			w.faulty = true
			w.plan = func(c storagetest.Call) storagetest.Fault {
				if calls = c.N + 1; c.N == n {
					return how
				}
				return storagetest.None
			}
			w.story(func() {})
			w.ends()
			w.tells()
			return calls
		}
		for n := range play(-1, storagetest.None) {
			for how := storagetest.Fail; how <= storagetest.Torn; how++ {
				if (int(how)+n)%3 == 0 || testkit.Full() {
					play(n, how)
				}
				if t.Failed() {
					t.Fatalf("call %d: %v", n, how)
				}
			}
		}
	})
	t.Run("net F2 an entry that must be written again does not only grow", func(t *testing.T) {
		for n := range 4 {
			w := newWorld(t, swellingLand{}, nil, false)
			s := &synced{w.storage, make(map[string]bool)}
			w.storage, w.faulty, w.wild = s, true, true
			syncs := 0
			w.plan = func(c storagetest.Call) storagetest.Fault {
				if c.Op != "sync" {
					return storagetest.None
				}
				if syncs++; syncs-1 == n {
					return storagetest.Fail
				}
				return storagetest.None
			}
			w.start()
			for i := range 5 {
				w.says([]string{"d/a", "b"}[i%2], fmt.Sprint("text ", i))
				w.project()
			}
			w.project() // a commit that failed is repeated
			if len(s.left) > 0 {
				t.Errorf("sync %d failed, and the tree shows the log, but %q was not synced", n, slices.Sorted(maps.Keys(s.left)))
			}
		}
	})
	t.Run("net F2 an entry that could not be rendered is rendered again", func(t *testing.T) {
		for n := range 3 {
			rendered := 0
			w := newWorld(t, moodyLand{fails: func() bool { rendered++; return rendered-1 == n }}, nil, false)
			w.wild = true
			w.start()
			for _, id := range []string{"a", "d/a"} {
				w.says(id, "text of "+id)
				w.project()
			}
			w.pass(15 * time.Second)
			for _, id := range []string{"a", "d/a"} {
				if got := w.user.Files()[id]; got != "text of "+id {
					t.Errorf("rendering %d failed, and %s is %q", n, id, got)
				}
			}
		}
	})
	t.Run("net F2 every append of the tree fails once", func(t *testing.T) {
		for how := overtaken; how <= unanswered; how++ {
			for n, appends := 0, 0; n <= appends; n++ {
				w := planned(t)
				d := &disturbedTarget{Store: w.st, at: n, how: how, w: w}
				w.target = d
				w.story(func() {})
				w.pass(15 * time.Second) // without another notification
				if w.textOf("b") == "first b" || w.textOf("d/n") == "" || w.textOf("d/a") == "first d/a" {
					t.Errorf("F2: an edit is not taken: b is %q, d/n is %q, d/a is %q", w.textOf("b"), w.textOf("d/n"), w.textOf("d/a"))
				}
				w.ends()
				if t.Failed() {
					t.Fatalf("append %d: %v", n, how)
				}
				if n == 0 {
					appends = d.n
				}
			}
		}
	})
}
