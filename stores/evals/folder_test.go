package evals_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// shown is a store with its conversations in a folder, and a program that only uses the folder.
type shown struct {
	t *testing.T
	*tally.Store
	dir      string
	compiled string // the program
}

func newShown(t *testing.T, compiled string) shown {
	st, _ := storetest.Live(t, "", tallydir.Layout{})
	s := shown{t, st, filepath.Join(t.TempDir(), ".tally"), compiled}
	s.settle()
	return s
}

// settle imports the files that the program wrote.
func (s shown) settle() {
	s.t.Helper()
	if err := s.KeepFiles(s.t.Context(), tallydir.Layout{}.Name(), s.dir); err != nil {
		s.t.Fatal(err)
	}
}

// program runs the program with an input, and returns its output.
func (s shown) program(told io.Reader) string {
	s.t.Helper()
	return string(testkit.Node(s.t, told, s.compiled, s.dir))
}

func (s shown) equalsExport() {
	s.t.Helper()
	layouttest.MustEqual(s.t, export(s.t, s.Store), layouttest.ReadLive(s.t, s.dir))
}

func (s shown) records(id string) int { return len(recordsOf(s.t, s.Store, id)) }

func TestOriginalsProgram(t *testing.T) {
	ctx, program := t.Context(), testkit.TypeScript(t, "testdata/store.mts")
	t.Run("T-38 T-33 a program that reads the folder has all that was acknowledged, while steps are appended", func(t *testing.T) {
		s := newShown(t, program)
		c, _, err := evals.Create(ctx, s.Store, "c1")
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		go func() {
			fmt.Fprintln(w, "meta c1")
			for i := range 40 {
				if _, err := c.Append(ctx, stepOf(i, fmt.Sprint("text ", i))); err != nil {
					w.CloseWithError(err)
					return
				}
				fmt.Fprintln(w, "acknowledged c1", i+1)
				if i%10 == 9 {
					run := c.Run(evals.TrajectoryRun, fmt.Sprint("run-", i))
					if _, err := run.Save(ctx, events.Raw(fmt.Sprintf(`{"n":%d}`, i))); err != nil {
						w.CloseWithError(err)
						return
					}
					fmt.Fprintln(w, "run c1", run.ID(), i)
				}
			}
			w.Close()
		}()
		if said := s.program(r); said != "45\n" {
			t.Errorf("the original's program passed %s of 45 steps", said)
		}
		s.equalsExport()
		for _, p := range []string{c.Path(), c.Run(evals.TrajectoryRun, "run-9").Path()} {
			if _, err := os.Stat(filepath.Join(s.dir, p)); err != nil {
				t.Error(err)
			}
		}
		t.Run("D-41 the files alone give an equal conversation and its runs", func(t *testing.T) {
			other := layouttest.Alone(t, s.Store, tallydir.Layout{}, s.dir)
			mine, back := need(s.Session("c1").Load(ctx, "")), need(other.Loader().Session(ctx, events.Session(other.Namespace(), "c1"), 0))
			if len(mine.Ledger.Runs) != 4 || len(back.Ledger.Runs) != 4 {
				t.Errorf("got %d runs, want %d", len(back.Ledger.Runs), len(mine.Ledger.Runs))
			}
			for _, run := range mine.Ledger.Runs {
				if have := back.Ledger.Run(events.RunRef{Kind: run.Kind, ID: run.ID}); have == nil || have.State != run.State {
					t.Errorf("run %v: %+v, want %+v", run.ID, have, run)
				}
			}
		})
	})
	t.Run("T-38 what a program writes to the folder is stored: equal, extends, differs", func(t *testing.T) {
		s := newShown(t, program)
		c, _, err := evals.Create(ctx, s.Store, "c1")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			need(c.Append(ctx, stepOf(i, fmt.Sprint("text ", i))))
		}
		before := s.records("c1")
		s.program(strings.NewReader("same c1\n"))
		s.settle()
		if n := s.records("c1"); n != before {
			t.Errorf("a save of equal content added %d records", n-before)
		}
		s.program(strings.NewReader("extend c1 3 more\n"))
		s.settle()
		if d := mustContent(t, c); len(d.Steps) != 4 || !strings.Contains(string(d.Steps[3].Raw()), `"<more>"`) {
			t.Errorf("after an extension: got %d steps", len(d.Steps))
		}
		grown := recordsOf(t, s.Store, "c1")
		if last := grown[len(grown)-1]; last.Type != events.TypeTurnAppended {
			t.Errorf("after an extension the last event is %s", last.Type)
		}
		s.program(strings.NewReader("change c1 1 otherwise\n"))
		s.settle()
		if d := mustContent(t, c); len(d.Steps) != 4 || string(d.Steps[1].Output()[0]) != `{"role":"assistant","content":"otherwise"}` || !strings.Contains(string(d.Steps[0].Raw()), "text 0") {
			t.Errorf("after other content: %+v", d)
		}
		s.program(strings.NewReader("create by-node hello\nsave by-node run-1-a 7\nsave c1 run-1-a 8\n"))
		s.settle()
		if d := mustContent(t, evals.Of(s.Store, "by-node")); d.ID != "by-node" || len(d.Steps) != 1 {
			t.Errorf("got %+v", d)
		}
		for id, want := range map[string]string{"by-node": `"n": 7`, "c1": `"n": 8`} {
			if raw := need(evals.Of(s.Store, id).Run(evals.TrajectoryRun, "run-1-a").Raw(ctx)); !strings.Contains(string(raw), want) {
				t.Errorf("the run of %s is %s", id, raw)
			}
		}
		need(c.Append(ctx, stepOf(4, "text 4")))
		if said := s.program(strings.NewReader("list\n")); said != "by-node c1\n1\n" {
			t.Errorf("got %q", said)
		}
		s.equalsExport()
	})
}
