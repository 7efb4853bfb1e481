package view_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector/view"
)

// startKeeper starts a process that attaches to a store, and keeps the views that no other process keeps.
func startKeeper(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), keeperOf+"="+dir), os.Stderr
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("a process does not attach: %v", err)
	}
	return c
}

// keeperPID waits until a process keeps a view, and returns its id.
func keeperPID(t *testing.T, dir, name string) int {
	t.Helper()
	for giveUp := time.Now().Add(testkit.Patience(time.Minute)); time.Now().Before(giveUp); time.Sleep(10 * time.Millisecond) {
		list, err := catalog.OwnIn(dir)
		must(t, err)
		for _, f := range list {
			if f.Name == name && f.Keeper != 0 {
				return f.Keeper
			}
		}
	}
	t.Fatalf("no process keeps the view %s", name)
	return 0
}

// appendSome appends events of the types of the views, rewinds and forks.
func appendSome(t *testing.T, st *tally.Store, rnd *rand.Rand, round int) (last events.Offset) {
	t.Helper()
	for i := range 12 {
		sub := events.Session("", fmt.Sprint("s", rnd.IntN(3)))
		switch n := rnd.IntN(10); {
		case i == 0:
			last = mustAppend(t, st, events.Session("", fmt.Sprint("fork", last, rnd.Uint32())), events.TypeSessionCreated,
				`{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z","fork":{"session":"s0","offset":%d}}`, 1+rnd.IntN(20*round+1))
		case n < 4:
			last = mustAppend(t, st, sub, "com.acme.vote.cast.v2", `{"for":"%d-%d"}`, round, i)
		case n < 6:
			last = mustAppend(t, st, sub, "com.acme.alarm.raised.v1", `{"for":"%d-%d"}`, round, i)
		case n < 8:
			last = mustAppend(t, st, sub, events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":%d}]}`, i)
		default:
			last = mustAppend(t, st, sub, events.TypeSessionRewound, `{"to":%d}`, 1+rnd.IntN(20*round+1))
		}
	}
	return last
}

// mustAgree waits for the views, and compares them with the model.
func mustAgree(t *testing.T, st *tally.Store, last events.Offset) {
	t.Helper()
	must(t, st.Wait(soon(t), "lines", last))
	must(t, st.Wait(soon(t), "rows", last))
	var records []events.Record
	var subs []events.Subject
	for rec, err := range st.Log.Read(t.Context(), events.Range{}) {
		must(t, err)
		records = append(records, rec)
		if rec.Subject.IsSession() && !slices.Contains(subs, rec.Subject) {
			subs = append(subs, rec.Subject)
		}
	}
	for _, sub := range subs {
		var want []string
		for _, rec := range model(records, sub, last, events.MaxOffset).effective(ownMoves) {
			text, err := line(rec.Event)
			must(t, err)
			want = append(want, text)
		}
		got, _, err := linesFold.Get(t.Context(), st, sub)
		must(t, err)
		if diff := cmp.Diff(want, got.Lines); diff != "" {
			t.Fatalf("%s at %v (-model +view):\n%s", sub, last, diff)
		}
	}
}

// L-2: the owner of a store has not the code of the views. Two attached programs have it: one keeps them. When that is
// killed, the other takes over.
func TestKeepers(t *testing.T) {
	testkit.Long(t)
	t.Run("X-03 the keeper is killed", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		st := mustOpen(t, embedded.Options{Backend: "local", Store: dir}) // not the views
		kills := 2
		if testkit.Soak() {
			kills = 50
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		running := map[int]*exec.Cmd{}
		start := func() {
			c := startKeeper(t, dir)
			running[c.Process.Pid] = c
		}
		start()
		start()
		for round := 1; round <= kills; round++ {
			last := appendSome(t, st, rnd, round)
			if rnd.IntN(2) == 0 { // else the keeper is killed while it folds
				must(t, st.Wait(soon(t), "lines", last))
			}
			keeper := running[keeperPID(t, dir, "lines")]
			must(t, keeper.Process.Kill())
			_ = keeper.Wait() // it was killed
			delete(running, keeper.Process.Pid)
			mustAgree(t, st, appendSome(t, st, rnd, round)) // by the other process
			start()
		}
	})
	t.Run("L-3 rebuild between appends", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		st := mustOpen(t, embedded.Options{Backend: "local", Store: dir, Views: []view.View{linesFold.View(), linesOwn.View()}})
		rnd := rand.New(rand.NewPCG(3, 4))
		for round := 1; round <= 4; round++ {
			appendSome(t, st, rnd, round)
			done := make(chan error, 2)
			for _, name := range []string{"lines", "rows"} {
				go func() { done <- st.Rebuild(t.Context(), name) }()
			}
			last := appendSome(t, st, rnd, round)
			must(t, <-done)
			must(t, <-done)
			mustAgree(t, st, last)
			found, err := st.VerifyViews(t.Context())
			must(t, err)
			if len(found) > 0 {
				t.Fatalf("verify finds %v", found)
			}
		}
	})
}

// A program with a higher version of a view has a file of its own, and removes the lower one when no process keeps it.
// A removed file is built again by the process that keeps the view.
func TestFilesOfViews(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	second := linesFold
	second.Version = 2
	versions := func() (list []int) {
		files, err := catalog.OwnIn(dir)
		must(t, err)
		for _, f := range files {
			list = append(list, f.Version)
		}
		return list
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for giveUp := time.Now().Add(testkit.Patience(time.Minute)); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(giveUp) {
				t.Fatalf("%s: it has versions %v", what, versions())
			}
		}
	}
	st := mustOpen(t, embedded.Options{Backend: "local", Store: dir})
	last := mustAppend(t, st, events.Session("", "s"), "com.acme.vote.cast.v2", `{"for":"a"}`)
	program := func(v view.View) *tally.Store {
		attached, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: "local", Store: dir, Views: []view.View{v}})
		must(t, err)
		must(t, attached.Wait(soon(t), "lines", last))
		return attached
	}
	expect := func(what string) {
		t.Helper()
		if s, at, err := linesFold.Get(t.Context(), st, events.Session("", "s")); err != nil || at < last || len(s.Lines) != 1 {
			t.Errorf("version 1, %s: got %v at %v, %v", what, s, at, err)
		}
	}
	first, next := program(linesFold.View()), program(second.View())
	if got := versions(); !slices.Equal(got, []int{2, 1}) {
		t.Errorf("two programs keep versions %v, want 2 and 1", got)
	}
	expect("kept")
	must(t, first.Close())
	must(t, next.Close())
	expect("no longer kept")
	next = program(second.View())
	defer next.Close()
	await("the lower version is removed", func() bool { return slices.Equal(versions(), []int{2}) })
	expect("without a file, from the log")
	must(t, catalog.Remove(filepath.Join(dir, second.View().File)))
	await("the keeper builds its file again", func() bool { return slices.Equal(versions(), []int{2}) })
	must(t, next.Wait(soon(t), "lines", last))
}
