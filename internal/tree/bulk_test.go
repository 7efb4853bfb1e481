package tree

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// In a small tree the loss of more than half of the files raises a question, in a large one more changes than the
// limit. A saved file is not a loss. New files are allowed up to the limit.
func TestBulk(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name                                    string
		files, gone, emptied, saved, new, limit int
		asks                                    bool
	}{
		{"most of a few", 6, 4, 0, 0, 0, 50, true}, {"half of a few", 6, 3, 0, 0, 0, 50, false}, {"all there is", 1, 1, 0, 0, 0, 50, true}, {"new ones", 2, 0, 0, 0, 20, 50, false},
		{"many new ones", 2, 0, 0, 0, 60, 50, true}, {"some of many", 100, 40, 0, 0, 0, 50, false}, {"more than the limit of many", 200, 51, 0, 0, 0, 50, true}, {"asking is off", 6, 6, 0, 0, 0, -1, false},
		{"B-43 half, of eight", 8, 4, 0, 0, 0, 50, false}, {"B-43 one more than half, of eight", 8, 5, 0, 0, 0, 50, true},
		{"B-43 three of four, which are few", 4, 3, 0, 0, 0, 50, false}, {"B-43 four of seven", 7, 4, 0, 0, 0, 50, true},
		{"B-43 as many as the limit", 200, 50, 0, 0, 0, 50, false}, {"B-43 emptied, half of eight", 8, 0, 4, 0, 0, 50, false},
		{"B-43 emptied, five of eight", 8, 0, 5, 0, 0, 50, true}, {"B-43 gone and emptied", 8, 3, 2, 0, 0, 50, true}, {"B-43 gone, emptied and saved", 8, 2, 2, 4, 0, 50, false},
		{"B-43 a formatter", 6, 0, 0, 4, 0, 50, false}, {"B-43 a formatter of all files", 6, 0, 0, 6, 0, 50, false}, {"B-43 saved, as many as the limit", 60, 0, 0, 50, 0, 50, false},
		{"B-43 saved, more than the limit", 60, 0, 0, 51, 0, 50, true}, {"B-43 all together, as many as the limit", 60, 10, 10, 20, 10, 50, false},
		{"B-43 all together, more than the limit", 60, 10, 10, 20, 11, 50, true}, {"B-43 a limit of one", 8, 0, 0, 2, 0, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, plainLand{}, nil, false)
			w.start()
			w.tree.c.BulkLimit = c.limit
			for i := range c.files {
				must(t, w.user.Put(fmt.Sprintf("f%03d", i), fmt.Sprint(i)))
			}
			w.tell()
			w.pass(5 * time.Second)
			head := need(w.st.Log.Durable(ctx))
			for i := range c.gone {
				must(t, w.user.Remove(fmt.Sprintf("f%03d", i)))
			}
			for i := range c.emptied {
				must(t, w.user.Put(fmt.Sprintf("f%03d", c.gone+i), ""))
			}
			for i := range c.saved {
				must(t, w.user.Put(fmt.Sprintf("f%03d", c.gone+c.emptied+i), fmt.Sprint("saved ", i)))
			}
			for i := range c.new {
				must(t, w.user.Put(fmt.Sprintf("n%03d", i), fmt.Sprint("new ", i)))
			}
			w.tell()
			w.pass(5 * time.Second)
			_, asks := errors.AsType[*BulkError](w.tree.Room())
			if taken := w.taken(head); asks != c.asks || asks != (taken == 0) {
				t.Fatalf("the tree asks: %v, and %d documents changed: %v", asks, taken, w.tree.Room())
			}
			if now := need(w.st.Log.Durable(ctx)); asks && int(now-head) != c.saved+c.new {
				t.Errorf("of %d texts, %d are in the log during the question", c.saved+c.new, now-head)
			}
			if !asks {
				return
			}
			must(t, w.tree.Restore(ctx))
			w.pass(5 * time.Second)
			if taken := w.taken(head); taken > 0 || len(w.files()) != c.files || w.tree.Room() != nil || len(need(w.tree.Conflicts(ctx))) > 0 {
				t.Errorf("%d files were restored, and %d documents changed", len(w.files()), taken)
			}
			must(t, w.user.Remove(""))
			w.tell()
			w.pass(5 * time.Second)
			must(t, w.tree.Accept(ctx))
			for info := range w.st.Subjects(ctx, plainKind) {
				if doc, err := w.st.Loader().Document(ctx, info.Subject, 0); err == nil {
					t.Errorf("document %s exists: %q", doc.Subject, doc.Data)
				}
			}
		})
	}
}

// taken returns the number of document revisions after an offset.
func (w *world) taken(after events.Offset) (count int) {
	for rec, err := range w.st.Log.Read(context.Background(), events.Range{Kind: plainKind, After: after}) {
		must(w.t, err)
		count += min(1, int(rec.Offset))
	}
	return count
}

// manyLand has enough files for a question, in one folder.
type manyLand struct{ plainLand }

func (manyLand) path(w *world) string { return fmt.Sprint("f", w.random.IntN(9)) }

// During questions and waits, with any saves, overwrites, removals and answers, every settled text is in the log, and
// at rest files and log agree.
func TestLawsAsked(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	asked := 0
	t.Run("B-43 every text is recorded while the tree asks", func(t *testing.T) {
		first := testkit.Seed(t)
		for n := range countFor(testkit.Times(600), 50_000) {
			asked += runAsked(t, first+uint64(n))
			if t.Failed() {
				return
			}
		}
	})
	if asked < 100 && !t.Failed() {
		t.Errorf("only %d questions were asked", asked)
	}
}

// runAsked plays a program with many simultaneous removals and saves. It returns the number of answered questions.
func runAsked(t testing.TB, seed uint64) (asked int) {
	w := newWorld(t, manyLand{}, rand.New(rand.NewPCG(seed, 2)), false)
	w.struck, w.limit = make(map[string]int), []int{3, 6, 50}[seed%3]
	defer func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(w.trace, "\n"))
		}
	}()
	w.start()
	for n := range 9 {
		p := fmt.Sprint("f", n)
		text, mark := w.land.text(w, p)
		must(t, w.user.Put(p, text))
		w.wrote(p, text, mark)
		w.changes++
	}
	w.tell()
	w.pass(3 * time.Second)
	for range 5 + w.random.IntN(25) {
		switch w.random.IntN(8) {
		case 0, 1, 2:
			w.burst()
		case 3:
			if w.random.IntN(3) == 0 {
				w.end()
			}
		case 4:
			asked += w.answer()
		default:
			w.step()
		}
		if t.Failed() {
			return asked
		}
	}
	for range 5 {
		w.rest()
		asked += w.answer()
	}
	w.rest()
	w.check()
	return asked
}

// burst does several changes at once, like a program that edits all files.
func (w *world) burst() {
	for range 2 + w.random.IntN(7) {
		if p := w.land.path(w); w.random.IntN(2) == 0 {
			w.leave(p)
			w.say("file: burst removes %s", p)
			_ = w.user.Remove(p) // it may not exist
			w.changes++
			w.touched = true
		} else {
			w.foreign()
		}
	}
	w.pass(time.Duration(w.random.IntN(3000)) * time.Millisecond)
}

// answer answers a question of the tree.
func (w *world) answer() int {
	if w.tree == nil || w.tree.Room() == nil {
		return 0
	}
	accept := w.random.IntN(2) == 0
	w.say("accept: %v, of %v", accept, w.tree.Room())
	w.alive(func(ctx context.Context) {
		if accept {
			must(w.t, w.tree.Accept(ctx))
			return
		}
		must(w.t, w.tree.Restore(ctx))
	})
	return 1
}

// Files that the tree writes are never edits, in any number and with any number of notifications.
func TestNoEcho(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, plainLand{}, nil, false)
	w.start()
	w.tree.c.BulkLimit = 50
	var at events.Offset
	for n := range 60 {
		sub := events.Document(w.st.Namespace(), plainKind, fmt.Sprintf("f%d", n))
		at = need(w.st.Append(ctx, sub, log.At(0), events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte{byte(n)}})).Last
	}
	w.project()
	w.pass(5 * time.Second) // it knows the folder
	for p := range w.user.Files() {
		w.tree.Changed(p)
	}
	w.pass(5 * time.Second)
	if head := need(w.st.Log.Durable(ctx)); head != at || w.tree.Room() != nil {
		t.Errorf("the tree appended up to %v, want nothing after %v; it asks: %v", head, at, w.tree.Room())
	}
}
