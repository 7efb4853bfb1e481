package tree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

// manyFiles returns a tree with files f0 to f<n-1>, which has 50 changes as its limit.
func manyFiles(t *testing.T, random *rand.Rand, n int) *world {
	w := newWorld(t, plainLand{}, random, false)
	w.start()
	w.tree.c.BulkLimit = 50
	for i := range n {
		w.revise(fmt.Sprint("f", i), fmt.Sprint("first f", i))
	}
	must(t, w.runner.CatchUp(context.Background(), nil))
	w.pass(3 * time.Second)
	return w
}

// loses removes or empties more than half of the files, and returns them.
func (w *world) loses(n int) (lost []string) {
	for _, i := range w.random.Perm(n)[:n/2+1] {
		p := fmt.Sprint("f", i)
		if lost = append(lost, p); w.random.IntN(3) == 0 {
			must(w.t, w.user.Put(p, ""))
		} else {
			must(w.t, w.user.Remove(p))
		}
	}
	w.tell()
	w.pass(3 * time.Second)
	return lost
}

// undone loses files and puts them back, before or after other texts, and returns a mistake, or "".
func undone(t *testing.T, random *rand.Rand) (wrong string) {
	n := 7 + random.IntN(6)
	w := manyFiles(t, random, n)
	lost := w.loses(n)
	if w.tree.Room() == nil {
		return "the tree does not ask"
	}
	for k, p := range lost {
		if random.IntN(4) == 0 {
			must(t, w.user.Put(p, fmt.Sprint("meanwhile ", k)))
			w.tell()
			w.pass([]time.Duration{0, 3 * time.Second}[random.IntN(2)])
		}
		must(t, w.user.Put(p, "first "+p))
		if random.IntN(2) == 0 {
			w.tell()
			w.pass(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
	}
	w.tell()
	w.pass(5 * time.Second)
	if err := w.tree.Room(); err != nil {
		return fmt.Sprintf("all files are back, and the tree still asks: %v", err)
	}
	for i := range n {
		if p := fmt.Sprint("f", i); w.textOf(p) != "first "+p {
			return fmt.Sprintf("the document %s is %q", p, w.textOf(p))
		}
	}
	return ""
}

// movedAway moves most files, answers the question, and returns a mistake, or "".
func movedAway(t *testing.T, random *rand.Rand) (wrong string) {
	ctx := context.Background()
	n := 7 + random.IntN(6)
	w := manyFiles(t, random, n)
	head := need(w.st.Log.Durable(ctx))
	away := random.Perm(n)[:n/2+1]
	for _, i := range away {
		must(t, w.user.Rename(fmt.Sprint("f", i), fmt.Sprint("g", i)))
	}
	w.tell()
	w.pass(3 * time.Second)
	if w.tree.Room() == nil {
		return "the tree does not ask"
	}
	if now := need(w.st.Log.Durable(ctx)); now != head {
		return fmt.Sprintf("during the question, something was appended: %v to %v", head, now)
	}
	accepts := random.IntN(2) == 0
	if accepts {
		must(t, w.tree.Accept(ctx))
	} else {
		must(t, w.tree.Restore(ctx))
	}
	w.pass(5 * time.Second)
	for _, i := range away {
		from, to := fmt.Sprint("f", i), fmt.Sprint("g", i)
		text := "first " + from
		if accepts {
			last := need(w.st.Loader().History(ctx, events.Document(w.st.Namespace(), plainKind, from))).Last()
			if w.textOf(to) != text || last.Reason != events.ReasonRenamed {
				return fmt.Sprintf("after Accept the document %s is %q, and %s is %+v", to, w.textOf(to), from, last)
			}
			continue
		}
		if w.textOf(from) != text || w.user.Files()[from] != text || w.textOf(to) != "" {
			return fmt.Sprintf("after Restore the document %s is %q with the file %q, and %s is %q", from, w.textOf(from), w.user.Files()[from], to, w.textOf(to))
		}
	}
	return ""
}

// removedMeanwhile removes a file while the log changes it, and returns a mistake, or "".
func removedMeanwhile(t *testing.T, random *rand.Rand) (wrong string) {
	ctx := context.Background()
	w := manyFiles(t, random, 3)
	w.tree.c.BulkLimit = -1
	want := "first f0"
	for n := range 1 + random.IntN(3) {
		shown, text := want, fmt.Sprint("revision ", n)
		revises := func() {
			if random.IntN(2) == 0 {
				w.revise("f0", text)
				want = text
			}
			if random.IntN(3) == 0 {
				must(t, w.runner.CatchUp(ctx, nil))
				shown = want
			}
		}
		revises()
		must(t, w.user.Remove("f0"))
		removed := shown
		w.tree.Changed("f0")
		w.pass(time.Duration(random.IntN(int(settleGone/time.Millisecond))) * time.Millisecond) // the removal does not count yet
		revises()
		if want == removed {
			want = ""
		}
		w.pass(3 * time.Second)
		must(t, w.runner.CatchUp(ctx, nil))
		w.pass(5 * time.Second)
		if is := w.textOf("f0"); is != want || w.user.Files()["f0"] != want {
			return fmt.Sprintf("a file with %q was removed: the document is %q with the file %q, want %q", removed, is, w.user.Files()["f0"], want)
		}
		if want == "" {
			w.revise("f0", "again")
			want = "again"
			must(t, w.runner.CatchUp(ctx, nil))
			w.pass(5 * time.Second)
		}
	}
	return ""
}

func TestQuestions(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	seed := testkit.Seed(t)
	for name, play := range map[string]func(*testing.T, *rand.Rand) string{
		"net F3 a question ends when all files are back":                           undone,
		"net F3 most files get new names after Accept, and old ones after Restore": movedAway,
		"net F1 a removal deletes only what the file showed":                       removedMeanwhile,
	} {
		t.Run(name, func(t *testing.T) {
			for n := range testkit.Times(60) {
				if wrong := play(t, rand.New(rand.NewPCG(seed+uint64(n), 5))); wrong != "" {
					t.Fatalf("seed %d: %s", seed+uint64(n), wrong)
				}
			}
		})
	}
	t.Run("net F3 a file that cannot be read delays no question about others", func(t *testing.T) {
		w := manyFiles(t, rand.New(rand.NewPCG(1, 5)), 8)
		w.faulty, w.plan = true, func(c storagetest.Call) storagetest.Fault {
			if c.Op == "read" && c.Path == "f7" {
				return storagetest.Fail
			}
			return storagetest.None
		}
		must(t, w.user.Put("f7", "edited"))
		for i := range 5 {
			must(t, w.user.Remove(fmt.Sprint("f", i)))
		}
		w.tell()
		w.pass(5 * time.Second)
		if w.tree.Room() == nil {
			t.Error("five of eight files are gone, and the tree does not ask")
		}
	})
	t.Run("net F2 a text that the tree wrote without an answer is not kept as a user's", func(t *testing.T) {
		ctx := context.Background()
		w := manyFiles(t, rand.New(rand.NewPCG(1, 5)), 1)
		isFirst := true
		w.faulty, w.plan = true, func(c storagetest.Call) storagetest.Fault {
			if c.Op == "swap" && c.Path == "f0" && isFirst {
				isFirst = false
				return storagetest.Unanswered
			}
			return storagetest.None
		}
		for _, text := range []string{"second", "third"} {
			w.revise("f0", text)
			must(t, w.runner.CatchUp(ctx, nil))
		}
		w.pass(15 * time.Second)
		if list := need(w.tree.Conflicts(ctx)); len(list) > 0 || w.user.Files()["f0"] != "third" || isFirst {
			t.Errorf("got the conflicts %v, and the file has %q", list, w.user.Files()["f0"])
		}
	})
}
