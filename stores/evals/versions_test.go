package evals_test

import (
	"reflect"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals"
)

func TestVersionsOfResults(t *testing.T) {
	eachParity(t, []parity{
		{"T-29 the same result about other steps is another version", testSameResultOtherSteps},
		{"T-34 the usage example of the description", testUsageExample},
	})
}

// A result belongs to the steps that it judged. If they have changed, the same bytes make a new version; saved once
// more, they do not.
func testSameResultOtherSteps(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	mustStore(t, c, saidSteps("a", "b")...)
	r := c.Run(evals.TallyRun, "run-1-a")
	result := []byte(artifact("1", "0.92"))
	want := func(what string, saved evals.SavedRun, version int, changed bool) {
		t.Helper()
		if saved.Version != version || (saved.Change != evals.NoChange) != changed {
			t.Errorf("%s: %+v, want version %d", what, saved, version)
		}
		if got := need(r.Stale(t.Context())); got != evals.Fresh {
			t.Errorf("%s: the result is %v", what, got)
		}
		if list := need(r.Versions(t.Context())); len(list) != version {
			t.Errorf("%s: got %d versions", what, len(list))
		}
	}
	want("first", need(r.Save(t.Context(), result)), 1, true)
	want("again", need(r.Save(t.Context(), result)), 1, false)
	mustStore(t, c, saidSteps("a", "other")...)
	if got := need(r.Stale(t.Context())); got == evals.Fresh {
		t.Errorf("with other steps the result is %v", got)
	}
	want("about other steps", need(r.Save(t.Context(), result)), 2, true)
	want("about those again", need(r.Save(t.Context(), result)), 2, false)
	mustStore(t, c, saidSteps("a", "other", "more")...)
	want("about more steps", need(r.Save(t.Context(), result)), 3, true)
}

// The description's own example, five calls in a row: get or create, save the traces of a simulation, create a run,
// save its result. New handles load everything back. The second round finds it.
func testUsageExample(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	for round := range 2 {
		c, found, err := evals.Get(ctx, st, "conv-1")
		if err != nil || found != (round == 1) {
			t.Fatalf("round %d: found %v, error %v", round, found, err)
		}
		if !found {
			if c, _, err = evals.Create(ctx, st, "conv-1"); err != nil {
				t.Fatal(err)
			}
		}
		data := need(evals.FromStepTraces(simulated(), "conv-1", []byte(`{"source":"example"}`)))
		if saved := need(c.Save(ctx, data)); (saved.Change == evals.Extension) != (round == 0) {
			t.Errorf("round %d: %+v", round, saved)
		}
		run := need(c.CreateRun(ctx, evals.TrajectoryRun, ""))
		if saved := need(run.Save(ctx, []byte(trajectoryRun))); saved.Version != 1 {
			t.Errorf("got %+v", saved)
		}

		again, found, err := evals.Get(ctx, st, "conv-1")
		if err != nil || !found {
			t.Fatalf("get the conversation: found %v, error %v", found, err)
		}
		d := mustContent(t, again)
		traces := evals.ToStepTraces(d, evals.TraceOptions{PreserveTurnIndices: true})
		if !reflect.DeepEqual(traces, simulated()) || d.ID != "conv-1" || string(d.Metadata) != `{"source":"example"}` {
			t.Errorf("loaded %+v, id %s, metadata %s", traces, d.ID, d.Metadata)
		}
		loaded, found, err := again.GetRun(ctx, run.ID())
		if err != nil || !found || loaded.Type() != evals.TrajectoryRun {
			t.Fatalf("%s: got %v, error %v", run.ID(), found, err)
		}
		if got := need(loaded.Load(ctx)); string(got.Raw) != trajectoryRun || got.Type != evals.TrajectoryRun {
			t.Errorf("%s is %s, %s", run.ID(), got.Type, got.Raw)
		}
		if runs := need(again.ListRuns(ctx)); len(runs) != round+1 {
			t.Errorf("got %d runs", len(runs))
		}
	}
}

// A step that is unchanged since it was loaded keeps its line, with all its bytes, even if a save changes the steps
// around it.
func TestUnchangedStepKeepsItsLine(t *testing.T) {
	odd := []string{
		`{ "stepIndex":0.0, "input":{"role":"user","content":"q\u0041"},"output":[] , "conversationId":"c1"}`,
		`{"conversationId":"other","stepIndex":7,"input":{"role":"user","content":"é\/"},"output":[],"n":1e2}`,
		`{"output":[],"input":{"role":"user","content":"x"},"stepIndex":2}`,
	}
	for name, change := range map[string]func(d *evals.Data){
		"extended": func(d *evals.Data) { d.Steps = append(d.Steps, stepOf(3, "new")) },
		"replaced": func(d *evals.Data) { d.Steps = append(d.Steps[:3:3], stepOf(4, "end")) },
		"shifted":  func(d *evals.Data) { d.Steps[2] = stepOf(2, "other") },
	} {
		t.Run(name, func(t *testing.T) {
			st := storetest.Memory(t, tally.Config{})
			sub := events.Session(st.Namespace(), "c1")
			for _, line := range odd {
				e, err := events.NewVerbatim("urn:test", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(line)}}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := st.Append(t.Context(), sub, log.Any, e); err != nil {
					t.Fatal(err)
				}
			}
			c := evals.Of(st, "c1")
			d := mustContent(t, c)
			if len(d.Steps) != len(odd) {
				t.Fatalf("got %d steps, warnings %v", len(d.Steps), d.Warnings)
			}
			change(d)
			need(c.Save(t.Context(), d))
			s, err := st.Session("c1").Load(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range odd[:2] {
				if got := string(s.Threads.Turns(events.MainThread)[i].Raw); got != line {
					t.Errorf("line %d is\n%s, want\n%s", i+1, got, line)
				}
			}
			if again := need(c.Save(t.Context(), mustContent(t, c))); again.Change != evals.NoChange {
				t.Errorf("a second save returned %+v", again)
			}
		})
	}
}
