package tree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
)

// revise appends a revision of a document, like a program.
func (w *world) revise(id, text string) events.Offset {
	ctx, sub := context.Background(), events.Document(w.st.Namespace(), plainKind, id)
	return need(w.st.Append(ctx, sub, log.Any, events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte(text)})).Last
}

// textOf returns the current text of a document, or "".
func (w *world) textOf(id string) string {
	doc, err := w.st.Loader().Document(context.Background(), events.Document(w.st.Namespace(), plainKind, id), 0)
	if err != nil {
		return ""
	}
	return string(doc.Data)
}

// asks returns whether a tree asks about changes, by the rules of C.4: more changes than the limit, more losses than
// three and than half of the files, or an empty folder.
func asks(files, gone, emptied, saved, limit int) bool {
	return gone+emptied+saved > limit || gone+emptied > 3 && 2*(gone+emptied) > files || gone == files
}

// conflicting plays random revisions and saves of one file, and returns a wrong conflict, or "".
func conflicting(t *testing.T, random *rand.Rand) (wrong string) {
	ctx := context.Background()
	w := newWorld(t, plainLand{}, random, false)
	w.touched = true
	w.start()
	w.pass(time.Second)
	shown := w.revise("a", "revision 0")
	must(t, w.runner.CatchUp(ctx, nil))
	w.pass(3 * time.Second)
	want := make(map[string]events.Offset) // text that was saved -> the newest record of the document that its file showed
	for n := 1; n < 4+random.IntN(6); n++ {
		for range random.IntN(3) {
			w.revise("b", fmt.Sprint("other ", n))
		}
		text := fmt.Sprint("saved ", n)
		saves, revisions := random.IntN(3) > 0, random.IntN(3)
		if saves {
			must(t, w.user.Put("a", text))
		}
		for i := range revisions {
			at := w.revise("a", fmt.Sprint("revision ", n, ".", i))
			if saves {
				want[text] = shown
			}
			if random.IntN(3) == 0 {
				must(t, w.runner.CatchUp(ctx, nil))
			}
			if i == revisions-1 {
				shown = at
			}
		}
		if random.IntN(2) == 0 {
			must(t, w.runner.CatchUp(ctx, nil))
		}
		w.tell()
		w.pass(5 * time.Second)
		must(t, w.runner.CatchUp(ctx, nil))
		w.pass(5 * time.Second)
		if saves && revisions == 0 {
			if w.textOf("a") != text {
				return fmt.Sprintf("the document is %q, want %q", w.textOf("a"), text)
			}
			shown = need(w.st.Log.Last(ctx, events.Document(w.st.Namespace(), plainKind, "a"))).Offset
		}
	}
	for _, c := range need(w.tree.Conflicts(ctx)) {
		text := string(need(w.st.Loader().Document(ctx, events.Document(w.st.Namespace(), KindConflict, c.ID), 0)).Data)
		// The base is an offset of the log: the document has no newer revision up to it than the one that the file showed.
		since := events.Offset(0)
		for rec, err := range w.st.Log.Read(ctx, events.Range{Subject: events.Document(w.st.Namespace(), plainKind, "a"), Upto: c.Base}) {
			must(t, err)
			since = rec.Offset
		}
		if base, is := want[text]; !is || since != base || c.Path != "a" {
			return fmt.Sprintf("the conflict of %q has the base %v, where the document is of %v; want %v", text, c.Base, since, base)
		}
		delete(want, text)
	}
	if len(want) > 0 {
		return fmt.Sprintf("no conflict has %v", want)
	}
	return ""
}

// acceptance asks about losses, changes files since, and returns a wrong document after Accept, or "".
func acceptance(t *testing.T, random *rand.Rand) (wrong string) {
	w := newWorld(t, plainLand{}, nil, false)
	w.start()
	w.tree.c.BulkLimit = 50
	n := 7 + random.IntN(6)
	want := make(map[string]string)
	for i := range n {
		p := fmt.Sprint("f", i)
		want[p] = "first " + p
		must(t, w.user.Put(p, want[p]))
	}
	w.tell()
	w.pass(5 * time.Second)
	change := func(p string, removes bool, text string) {
		if removes {
			if _, is := want[p]; is {
				must(t, w.user.Remove(p))
			}
			delete(want, p)
			return
		}
		want[p] = text
		must(t, w.user.Put(p, text))
	}
	for i := range n/2 + 1 {
		change(fmt.Sprint("f", i), true, "")
	}
	w.tell()
	w.pass(5 * time.Second)
	if w.tree.Room() == nil {
		return "the tree does not ask"
	}
	for k := range 1 + random.IntN(5) {
		change(fmt.Sprint("f", random.IntN(n+2)), random.IntN(2) == 0, fmt.Sprint("since ", k))
		w.pass([]time.Duration{0, 0, 3 * time.Second}[random.IntN(3)])
	}
	must(t, w.tree.Accept(context.Background()))
	for i := range n + 2 {
		if p := fmt.Sprint("f", i); w.textOf(p) != want[p] {
			return fmt.Sprintf("after Accept the document %s is %q, want %q", p, w.textOf(p), want[p])
		}
	}
	return ""
}

func TestConflictsAndQuestions(t *testing.T) {
	seed := testkit.Seed(t)
	for name, play := range map[string]func(*testing.T, *rand.Rand) string{
		"net F3 a conflict says on which offset its text was based": conflicting,
		"net F3 Accept imports the changes since the question":      acceptance,
	} {
		t.Run(name, func(t *testing.T) {
			for n := range testkit.Times(200) {
				if wrong := play(t, rand.New(rand.NewPCG(seed+uint64(n), 3))); wrong != "" {
					t.Fatalf("seed %d: %s", seed+uint64(n), wrong)
				}
			}
		})
	}
	t.Run("net F3 the bounds of a question, where only one of them decides", func(t *testing.T) {
		for files := 1; files <= 9; files++ {
			for lost := range files + 1 {
				for _, limit := range []int{3, 4, 5, 50} {
					saved := (files - lost) * (limit % 2)
					for _, emptied := range []int{0, lost / 2, lost} {
						w := newWorld(t, plainLand{}, nil, false)
						w.start()
						w.tree.c.BulkLimit = limit
						for i := range files {
							w.revise(fmt.Sprint("f", i), "first")
						}
						must(t, w.runner.CatchUp(context.Background(), nil))
						w.pass(3 * time.Second)
						for i := range lost + saved {
							p := fmt.Sprint("f", i)
							switch {
							case i < emptied:
								must(t, w.user.Put(p, ""))
							case i < lost:
								must(t, w.user.Remove(p))
							default:
								must(t, w.user.Put(p, "saved"))
							}
						}
						w.tell()
						w.pass(3 * time.Second)
						if is, want := w.tree.Room() != nil, asks(files, lost-emptied, emptied, saved, limit); is != want {
							t.Errorf("of %d files, %d were removed, %d emptied, %d saved, the limit is %d: the tree asks: %v, want %v", files, lost-emptied, emptied, saved, limit, is, want)
						}
					}
				}
			}
		}
	})
}

// away is a storage that can be moved away and back.
type away struct {
	storagetest.Whole
	is bool
}

func (a *away) Moved() bool   { return a.is }
func (a *away) Reopen() error { a.is = false; return nil }

// awayTarget is a store that takes no appends while it is away.
type awayTarget struct {
	*tally.Store
	isAway bool
}

// Append implements layouts.Target.
func (a *awayTarget) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	if a.isAway {
		return log.Ack{}, log.ErrUnavailable
	}
	return a.Store.Append(ctx, sub, expect, evs...)
}

// What happens beside a question, or beside a change of the log, once more.
func TestOnceMore(t *testing.T) {
	ctx := context.Background()
	begin := func(t *testing.T, files, limit int) *world {
		w := newWorld(t, plainLand{}, nil, false)
		w.start()
		w.tree.c.BulkLimit = 50
		for i := range files {
			must(t, w.user.Put(fmt.Sprint("f", i), "first"))
		}
		w.tell()
		w.pass(5 * time.Second)
		w.tree.c.BulkLimit = limit
		return w
	}
	t.Run("net F3 a text of the question that is saved again is dropped with it", func(t *testing.T) {
		w := begin(t, 8, 3)
		for i := range 5 {
			must(t, w.user.Put(fmt.Sprint("f", i), "saved"))
		}
		w.tell()
		w.pass(3 * time.Second)
		must(t, w.user.Put("f0", "saved"))
		w.tell()
		w.pass(3 * time.Second)
		if w.tree.Room() == nil {
			t.Fatal("the tree does not ask")
		}
		must(t, w.tree.Restore(ctx))
		w.pass(3 * time.Second)
		if list := need(w.tree.Conflicts(ctx)); len(list) > 0 || w.user.Files()["f0"] != "first" {
			t.Errorf("a user dropped the text: got conflicts %v, and the file has %q", list, w.user.Files()["f0"])
		}
	})
	t.Run("net F1 an editor writes to a replaced file again and again", func(t *testing.T) {
		w := begin(t, 1, 50)
		w.revise("f0", "of the log")
		must(t, w.runner.CatchUp(ctx, nil))
		for _, text := range []string{"one", "two", "three"} {
			for p := range w.user.Files() {
				if layouts.IsTemporary(p) {
					must(t, w.user.Put(p, text))
				}
			}
			w.pass(linger - 100*time.Millisecond)
			w.pass(200 * time.Millisecond)
		}
		var kept []string
		for _, c := range need(w.tree.Conflicts(ctx)) {
			kept = append(kept, string(need(w.st.Loader().Document(ctx, events.Document(w.st.Namespace(), KindConflict, c.ID), 0)).Data))
		}
		slices.Sort(kept)
		if want := []string{"one", "three", "two"}; !slices.Equal(kept, want) {
			t.Errorf("kept are %q, want %q", kept, want)
		}
	})
	t.Run("net F1 a user writes to a folder that is away, and moves it back", func(t *testing.T) {
		w := begin(t, 2, 50)
		a := &away{Whole: w.tree.c.Storage.(storagetest.Whole)}
		w.tree.c.Storage = a
		a.is = true
		w.pass(3 * time.Second)
		if w.tree.Room() == nil {
			t.Fatal("the tree does not ask")
		}
		must(t, w.user.Put("f0", "meanwhile")) // nobody watches
		a.is = false
		w.pass(5 * time.Second)
		if w.tree.Room() != nil || w.textOf("f0") != "meanwhile" {
			t.Errorf("the folder is back: the tree asks %v, and the document is %q", w.tree.Room(), w.textOf("f0"))
		}
	})
	t.Run("net F3 a file that is saved again counts once", func(t *testing.T) {
		w := begin(t, 6, 4)
		for i := range 3 {
			must(t, w.user.Put(fmt.Sprint("f", i), "saved"))
		}
		w.tell()
		w.pass(300 * time.Millisecond)
		must(t, w.user.Put("f4", "saved"))
		w.tree.Changed("f4")
		for n := range 10 { // an editor saves without a pause
			must(t, w.user.Put("f0", fmt.Sprint("again ", n)))
			w.tree.Changed("f0")
			w.pass(50 * time.Millisecond)
		}
		if got := w.textOf("f4"); got != "saved" {
			t.Errorf("as many files as the limit changed: the document f4 is %q, want it imported", got)
		}
	})
	t.Run("net F2 overtaken texts are in the log in the order in which they were saved, also after an outage", func(t *testing.T) {
		for from := range 4 {
			for upto := from + 1; upto <= 5; upto++ {
				w := newWorld(t, plainLand{}, nil, false)
				d := &awayTarget{Store: w.st}
				w.target = d
				w.start()
				w.tree.c.BulkLimit = 50
				for i := range 6 {
					w.revise(fmt.Sprint("f", i), "first")
				}
				must(t, w.runner.CatchUp(ctx, nil))
				w.pass(3 * time.Second)
				want := []string{"first"}
				for i := range 6 { // several files change, and the last one goes on, so the tree waits for more
					must(t, w.user.Put(fmt.Sprint("f", i), "saved"))
					w.tree.Changed(fmt.Sprint("f", i))
				}
				for n := range 5 {
					d.isAway = n >= from && n < upto
					want = append(want, fmt.Sprint("text ", n))
					must(t, w.user.Put("f0", want[n+1]))
					w.tree.Changed("f0")
					for k := range 5 {
						must(t, w.user.Put("f5", fmt.Sprint("again ", n, k)))
						w.tree.Changed("f5")
						w.pass(50 * time.Millisecond)
					}
				}
				d.isAway = false
				w.pass(5 * time.Second)
				var got []string
				for rec, err := range w.st.Log.Read(ctx, events.Range{Subject: events.Document(w.st.Namespace(), plainKind, "f0")}) {
					must(t, err)
					got = append(got, string(rec.Data))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("the log was away from text %d until text %d: it has %q, want %q", from, upto, got, want)
				}
			}
		}
	})
}
