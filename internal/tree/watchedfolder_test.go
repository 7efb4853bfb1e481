package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// real is a tree in a watched folder of the file system, in real time.
type real struct {
	t      *testing.T
	dir    string
	st     *tally.Store
	tree   *Tree
	runner *projector.Runner
}

func newReal(t *testing.T, limit int) *real {
	t.Helper()
	r := &real{t: t, dir: filepath.Join(need(filepath.EvalSymlinks(t.TempDir())), "tree"), st: openStore(t)}
	d := need(layouts.OpenDir(r.dir))
	r.tree = need(New(Config{Name: "real", Layout: plainLayout{}, Storage: d, Target: r.st, Head: r.st.Log.Durable, BulkLimit: limit}))
	r.runner = &projector.Runner{Log: r.st.Log, View: r.tree, Room: r.tree.Room}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.runner.Run(ctx) })
	running.Go(func() { r.tree.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := errors.Join(r.tree.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *real) sub(id string) events.Subject {
	return events.Document(r.st.Namespace(), plainKind, id)
}

// put appends a text to a document as of an offset.
func (r *real) put(id, text string, at events.Offset) (events.Offset, error) {
	ack, err := r.st.Append(context.Background(), r.sub(id), log.At(at), events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: r.sub(id),
		ContentType: events.ContentTypeRaw, Data: []byte(text)})
	return ack.Last, err
}

// until waits until a condition holds.
func (r *real) until(what string, so func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not true in time: %s; the tree is %+v", what, r.tree.Status())
		}
	}
}

// shows waits until the files show the log up to an offset.
func (r *real) shows(at events.Offset) error {
	ctx, stop := context.WithTimeoutCause(r.t.Context(), testkit.Patience(bound), fmt.Errorf("timeout: want the files to show the log up to %v", at))
	defer stop()
	if err := r.runner.Wait(ctx, at); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// revisions returns the texts of a document, oldest first.
func (r *real) revisions(id string) (list []string) {
	for rec, err := range r.st.Log.Read(context.Background(), events.Range{Subject: r.sub(id)}) {
		must(r.t, err)
		list = append(list, string(rec.Data))
	}
	return list
}

// Repeated saves of one file are not a mass change.
func TestSavedOften(t *testing.T) {
	r := newReal(t, 50)
	for n := range 14 {
		must(t, os.WriteFile(filepath.Join(r.dir, "a"), []byte(fmt.Sprint(n)), 0o644))
		r.until("it is taken in", func() bool {
			list := r.revisions("a")
			if len(list) > n+1 {
				t.Fatalf("imported %q", list)
			}
			return len(list) == n+1
		})
	}
}

// A program and the log write to one file within a millisecond. Both texts are in the log. If neither saw the other,
// one conflict reports that.
func TestBothSides(t *testing.T) {
	r, rounds, conflicts := newReal(t, -1), 50, 0
	if testkit.Soak() {
		rounds = 10_000
	}
	for first := 0; first < rounds; first += 50 {
		var ids []string
		refused := make(map[string]bool)
		for n := first; n < first+50; n++ {
			id := fmt.Sprintf("f%d", n)
			base := need(r.put(id, "base of "+id, 0))
			must(t, r.shows(base))
			file, begin := filepath.Join(r.dir, id), make(chan struct{})
			var both sync.WaitGroup
			both.Go(func() {
				<-begin
				if n%2 == 0 {
					time.Sleep(time.Duration(n%10) * 100 * time.Microsecond)
				}
				_, err := r.put(id, "log of "+id, base)
				if refused[id] = errors.Is(err, log.ErrConflict); !refused[id] && err != nil {
					t.Error(err)
				}
			})
			both.Go(func() {
				<-begin
				if n%2 == 1 {
					time.Sleep(time.Duration(n%10) * 100 * time.Microsecond)
				}
				if n%3 == 0 { // like an editor that replaces the file
					must(t, os.WriteFile(file+"~", []byte("file of "+id), 0o644))
					must(t, os.Rename(file+"~", file))
				} else {
					must(t, os.WriteFile(file, []byte("file of "+id), 0o644))
				}
			})
			close(begin)
			both.Wait()
			ids = append(ids, id)
		}
		found := make(map[string]int)
		is := func(id string) bool {
			return found[id] > 0 || strings.Contains(strings.Join(r.revisions(id), "\n"), "file of "+id)
		}
		r.until("the edits of all files are in the log", func() bool {
			clear(found)
			for _, c := range need(r.tree.Conflicts(t.Context())) {
				found[c.Path]++
			}
			for _, id := range ids {
				if !is(id) {
					return false
				}
			}
			return true
		})
		for _, id := range ids {
			list := r.revisions(id)
			last := list[len(list)-1]
			switch {
			case refused[id]: // the producer got the error
			case found[id] == 1 && len(list) == 2 && last == "log of "+id:
				conflicts++
			case found[id] == 0 && len(list) == 3 && list[1] == "log of "+id: // one came after the other
			default:
				t.Errorf("%s: got %d conflicts and the revisions %q", id, found[id], list)
			}
			r.until("file "+id+" is the last revision", func() bool {
				text, err := os.ReadFile(filepath.Join(r.dir, id))
				return err == nil && string(text) == last
			})
		}
		for _, c := range need(r.tree.Conflicts(t.Context())) {
			r.until("the copy is there", func() bool {
				text, err := os.ReadFile(filepath.Join(r.dir, c.Copy))
				return err == nil && string(text) == "file of "+c.Path
			})
			must(t, r.tree.Resolve(t.Context(), c.ID))
		}
	}
	if t.Logf("%d rounds, %d conflicts", rounds, conflicts); conflicts == 0 {
		t.Error("no write caused a conflict, want some")
	}
}

// A user repeatedly replaces a folder and files by links while the log writes there: nothing outside is read or
// written.
func TestLinks(t *testing.T) {
	r := newReal(t, -1)
	outside := filepath.Join(r.dir, "..", "outside")
	canary := testkit.Canary("outside")
	must(t, os.Mkdir(outside, 0o755))
	for _, name := range []string{"x", "y", "z"} {
		must(t, os.WriteFile(filepath.Join(outside, name), []byte(canary), 0o644))
	}
	stop := make(chan struct{})
	var adversary sync.WaitGroup
	adversary.Go(func() {
		at := func(s string) string { return filepath.Join(r.dir, s) }
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(at("d"), at("away~"))
			_ = os.Symlink("../outside", at("d"))
			time.Sleep(50 * time.Microsecond)
			_ = os.Remove(at("d"))
			_ = os.Rename(at("away~"), at("d"))
			_ = os.Remove(at("d/x"))
			_ = os.Symlink("../../outside/x", at("d/x"))
			time.Sleep(50 * time.Microsecond)
			_ = os.Remove(at("d/x"))
		}
	})
	for end, n := time.Now().Add(testkitTime(time.Second, time.Minute)), 0; time.Now().Before(end); n++ {
		id := []string{"d/x", "d/y", "d/z"}[n%3]
		doc, err := r.st.Loader().Document(t.Context(), r.sub(id), 0)
		if err != nil && !isGone(err) {
			t.Fatal(err)
		}
		head := events.Offset(0)
		if doc != nil {
			head = doc.Head
		}
		if at, err := r.put(id, fmt.Sprint("ours ", n), head); err == nil {
			_ = r.shows(at)
		} else if !errors.Is(err, log.ErrConflict) {
			t.Fatal(err)
		}
	}
	close(stop)
	adversary.Wait()
	for _, name := range []string{"x", "y", "z"} {
		if text, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(text) != canary {
			t.Errorf("the file %s outside is %q, error %v", name, text, err)
		}
	}
	if list := need(os.ReadDir(outside)); len(list) != 3 {
		t.Errorf("the folder outside has %v", list)
	}
	for rec, err := range r.st.Log.Read(t.Context(), events.Range{}) {
		must(t, err)
		if strings.Contains(string(rec.Data), canary) {
			t.Fatalf("%v: a file outside the tree was imported", rec.Subject)
		}
	}
	// The tree continues when the user stops.
	_ = os.Remove(filepath.Join(r.dir, "d", "x"))
	must(t, os.MkdirAll(filepath.Join(r.dir, "d"), 0o755))
	at := need(r.put("after", "text", 0))
	must(t, r.shows(at))
	if text, err := os.ReadFile(filepath.Join(r.dir, "after")); err != nil || string(text) != "text" {
		t.Errorf("got %q, error %v", text, err)
	}
}

func testkitTime(few, many time.Duration) time.Duration {
	if testkit.Soak() {
		return many
	}
	return few
}
