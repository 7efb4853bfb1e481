package embedded_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// cuts keeps copies of a store from random moments of an erasure: before each of its steps and writes, after each sync,
// and with a part of the file that was just written. The next owner finds the store so if the process ends then.
type cuts struct {
	h       *hoard
	dir     string
	want    int // copies to keep
	mu      sync.Mutex
	moments int
	kept    []cut
	plan    erasure.Plan
}

type cut struct {
	dir, moment string
}

// take keeps a copy of the present moment, or not: each moment has the same chance. written is the file that was just
// written, "" for none.
func (c *cuts) take(moment, written string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moments++
	at := len(c.kept)
	if at == c.want {
		if at = c.h.rnd.IntN(c.moments); at >= c.want {
			return
		}
	} else {
		c.kept = append(c.kept, cut{})
	}
	dir := filepath.Join(c.h.t.TempDir(), "store")
	copyStore(c.h.t, dir, c.dir)
	if written != "" {
		moment += c.shorten(dir, written)
	}
	os.RemoveAll(c.kept[at].dir)
	c.kept[at] = cut{dir, moment}
}

// shorten makes a file of a copy as it is in the middle of its write: a new file is shorter, and a file that is
// overwritten with zeros has its former end.
func (c *cuts) shorten(dir, written string) string {
	rel, err := filepath.Rel(c.dir, written)
	path := filepath.Join(dir, rel)
	info, errStat := os.Stat(path)
	if err != nil || errStat != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return ""
	}
	n := c.h.rnd.Int64N(info.Size())
	if durable.IsTemporary(path) {
		c.h.must(os.Truncate(path, n))
		return fmt.Sprintf(", %d bytes of it", n)
	}
	before, err := os.ReadFile(filepath.Join(c.h.dir, rel))
	if err != nil || int64(len(before)) != info.Size() {
		return ""
	}
	text, err := os.ReadFile(path)
	c.h.must(err)
	c.h.must(os.WriteFile(path, append(text[:n], before[n:]...), info.Mode()))
	return fmt.Sprintf(", %d bytes of it overwritten", n)
}

// watch takes copies until the returned function is called.
func (c *cuts) watch(t *testing.T) (stop func()) {
	// Copies are taken at files that only the erasure writes. The group sync of a block that was replaced reports the path
	// of its new file: a copy in which that one is half written has a state that no disk can have.
	inside := func(path string) (string, bool) {
		rel, err := filepath.Rel(c.dir, path)
		isOwn := strings.HasPrefix(rel, erasure.JournalFile) || strings.HasPrefix(rel, "snapshots") && !durable.IsTemporary(rel) ||
			strings.HasPrefix(rel, "jetstream") && durable.IsTemporary(rel)
		return rel, err == nil && isOwn
	}
	embedded.SetEraseStep(t, func(step string) (err error) {
		if step == "begun" {
			c.plan, _, err = erasure.Load(c.dir)
		}
		c.take("before the step "+step, "")
		return err
	})
	unguard := durable.Guard(func(path string) error {
		if rel, is := inside(path); is {
			c.take("before a write of "+rel, "")
		}
		return nil
	})
	unwatch := durable.Watch(func(path string) {
		if rel, is := inside(path); is {
			c.take("at the sync of "+rel, path)
		}
	})
	return func() {
		embedded.SetEraseStep(t, func(string) error { return nil })
		unguard()
		unwatch()
	}
}

// A random selection is forgotten, and the process ends at a random moment. The next owner of the store completes it: no
// file has a forgotten word, and everything else is as before.
func TestForgetCuts(t *testing.T) {
	testkit.NotUnderRace(t) // a test of files
	rounds, copies := 1, 2
	switch {
	case testkit.Soak():
		rounds, copies = 60, 5
	case testkit.IsWhole():
		rounds, copies = 9, 3
	case testkit.Full():
		rounds, copies = 4, 3
	}
	h := newHoard(t)
	first := h.rnd.IntN(9)
	for round := range rounds {
		scopes := h.scopes()
		scope := scopes[(first+round)%len(scopes)]
		if !t.Run(fmt.Sprintf("X-11 X-23 L-4 L-5 L-6 %v", scope), func(t *testing.T) { h.in(t).cut(t, scope, copies) }) {
			return
		}
	}
}

// in returns the hoard for a subtest.
func (h *hoard) in(t *testing.T) *hoard {
	other := *h
	other.t = t
	return &other
}

func (h *hoard) cut(t *testing.T, scope hoardScope, copies int) {
	gone := h.gone(scope)
	c := &cuts{h: h, dir: filepath.Join(t.TempDir(), "store"), want: copies}
	copyStore(t, c.dir, h.dir)
	st := h.mustOpen(c.dir)
	stop := c.watch(t)
	_, err := st.Forget(t.Context(), scope.forget)
	stop()
	h.must(err)
	h.check(st, gone)
	for _, rec := range h.read(st)[:len(h.records)] { // a copy with the plan has the same
		want := h.records[rec.Offset-1].Event
		if r, is := c.plan.Find(rec.Offset); is {
			want, err = r.Apply(c.plan.Receipt, want)
			h.must(err)
		}
		if !rec.Equal(want) {
			t.Errorf("%v is %v %s, a copy with the plan has %v %s", rec.Offset, rec.Extensions, rec.Data, want.Extensions, want.Data)
		}
	}
	h.must(st.Close())
	h.checkFiles(c.dir, gone)
	for _, left := range c.kept {
		was := t.Failed()
		h.next(left.dir, gone)
		if !was && t.Failed() {
			t.Errorf("the process ended %s", left.moment)
		}
		h.must(os.RemoveAll(left.dir))
	}
	t.Logf("%d moments, %d words of %d went", c.moments, len(gone), len(h.words))
}

// next opens what an owner left, and checks that all of gone has gone, or nothing.
func (h *hoard) next(dir string, gone map[string]bool) (all bool) {
	h.t.Helper()
	all = erasure.Pending(dir)
	st := h.mustOpen(dir)
	for _, rec := range h.read(st) {
		all = all || rec.Subject.Kind == erasure.KindReceipt
	}
	if !all {
		gone = nil
	}
	h.check(st, gone)
	h.must(st.Close())
	h.checkFiles(dir, gone)
	return all
}

// childForget tells the test binary to forget a selection in the store childDir.
const childForget = "TALLY_TEST_CHILD_FORGET"

// forgetChild forgets, and prints a line before and after it.
func forgetChild(dir, selection string) {
	var f tally.Forget
	exitOn(json.Unmarshal([]byte(selection), &f))
	st, err := embedded.Open(context.Background(), embedded.Options{Store: dir, Own: true, Policy: projector.Policy{Records: 5}})
	exitOn(err)
	fmt.Println("open")
	_, err = st.Forget(context.Background(), f)
	exitOn(err)
	fmt.Println("forgotten")
	exitOn(st.Close())
	os.Exit(0)
}

// The same with a process that is killed.
func TestForgetKilled(t *testing.T) {
	testkit.OnlyFull(t, "TestForgetCuts ends an erasure at random moments")
	testkit.NotUnderRace(t)
	kills := 4
	if testkit.Soak() {
		kills = 200
	}
	h := newHoard(t)
	window, complete := 2*time.Second, 0
	for round := range kills {
		scopes := h.scopes()
		scope := scopes[round%len(scopes)]
		gone := h.gone(scope)
		dir := filepath.Join(t.TempDir(), "store")
		copyStore(t, dir, h.dir)
		if took := h.forgetAndKill(dir, scope.forget, window); took > 0 {
			window = took
		}
		if h.next(dir, gone) {
			complete++
		}
		if t.Failed() {
			t.Fatalf("round %d: %v", round, scope)
		}
		h.must(os.RemoveAll(dir))
	}
	t.Logf("%d kills, the erasure had begun before %d of them", kills, complete)
}

// forgetAndKill starts a process that forgets, and kills it at a random time within the window. If the process was
// faster, took is the time that it needed.
func (h *hoard) forgetAndKill(dir string, f tally.Forget, window time.Duration) (took time.Duration) {
	h.t.Helper()
	selection, err := json.Marshal(f)
	h.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childForget+"="+string(selection), "TALLY_SEGMENT=16KiB")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		h.t.Fatalf("the owner did not open the store: %v", cmd.Wait())
	}
	began := time.Now()
	kill := time.AfterFunc(time.Duration(h.rnd.Int64N(int64(window))), func() { cmd.Process.Kill() })
	if lines.Scan() {
		took = time.Since(began)
	}
	kill.Stop()
	cmd.Process.Kill()
	cmd.Wait() // killed, or ended already
	return took
}
