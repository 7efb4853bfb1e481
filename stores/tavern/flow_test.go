package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func TestFlows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		flowTemplates(t, st)
		t.Run("D-22 an invalid transition is refused, incomplete steps are listed", func(t *testing.T) { flowMoves(t, st) })
		t.Run("D-22 a nested workflow is over before its state is left", func(t *testing.T) { flowNested(t, st) })
		t.Run("D-22 the recovery rule of each state is applied", func(t *testing.T) { flowRecovers(t, st) })
		t.Run("D-22 a worker that was lost is refused", func(t *testing.T) { flowFences(t, st) })
		t.Run("D-38 a flow whose owner is gone is an orphan", func(t *testing.T) { flowOrphans(t, st) })
		t.Run("D-39 the log alone knows it", func(t *testing.T) { flowFromLog(t, st) })
	})
}

// flowStart starts a flow of a template.
func flowStart(t *testing.T, st *tally.Store, template, id string) *tavern.Flow {
	t.Helper()
	f, err := tavern.WorkflowsOf(st).Start(t.Context(), template, tavern.FlowOptions{ID: id, Owner: "agent/a", Input: events.Raw(`{"n": 1.0}`)})
	must(t, err)
	return f
}

func flowMoves(t *testing.T, st *tally.Store) {
	ctx, f := t.Context(), flowStart(t, st, "suite", "moves")
	s := flowIs(t, f, "run", 1, "")
	if s.Run.Owner != "agent/a" || string(s.Input) != `{"n": 1.0}` || s.Attempt != 1 || s.Run.Attempt != 1 || s.Held || !strings.HasPrefix(string(s.Run.Template), "document/workflow/suite@") {
		t.Errorf("the flow is %+v", s)
	}
	e := flowRefused[*tavern.TransitionError](t, st, "a move to nowhere", func() error { return f.Move(ctx, "walk") })
	if diff := cmp.Diff(&tavern.TransitionError{What: "flow moves", From: "run", To: "walk", Allowed: []string{"run", "ran"}}, e); diff != "" {
		t.Error(diff)
	}
	flowRefused[*tavern.TransitionError](t, st, "an end in the middle", func() error { return f.End(ctx, nil) })
	must(t, f.Move(ctx, "run"))
	must(t, f.MoveFrom(ctx, s, "run")) // the same call again
	flowRefused[*log.ConflictError](t, st, "a move out of a step that was left", func() error { return f.MoveFrom(ctx, s, "ran") })
	s = flowIs(t, f, "run", 2, "")
	if diff := cmp.Diff([]tavern.FlowStep{{State: "run", Status: tavern.StepCurrent, Visits: 2}}, s.Incomplete()); diff != "" {
		t.Error(diff)
	}
	must(t, f.Move(ctx, "ran"))
	must(t, f.End(ctx, events.Raw(`{"passed": 7}`)))
	must(t, f.End(ctx, events.Raw(`{"passed": 7}`)))
	s = flowIs(t, f, "ran", 3, "completed")
	if string(s.Result) != `{"passed": 7}` || len(s.Incomplete()) != 0 || s.Steps()[0].Status != tavern.StepDone || s.EndedAt.IsZero() {
		t.Errorf("the ended flow is %+v", s)
	}
	for what, do := range map[string]func() error{
		"move": func() error { return f.Move(ctx, "run") }, "another end": func() error { return f.End(ctx, events.Raw(`8`)) }, "fail": func() error { return f.Fail(ctx, "late") },
		"claim": func() error { return second(f.Claim(ctx, "w", 0)) },
	} {
		flowRefused[*tavern.FlowOverError](t, st, what, do)
	}

	r := flowStart(t, st, "release", "steps")
	want := []tavern.FlowStep{{State: "build", Status: tavern.StepCurrent, Visits: 1}, {State: "test", Status: tavern.StepOpen}, {State: "ship", Status: tavern.StepOpen}}
	if diff := cmp.Diff(want, need(r.State(ctx)).Incomplete()); diff != "" {
		t.Error(diff) // triage is a recovery state: no move leads there
	}
	must(t, r.Fail(ctx, "no time\xff"))
	if s := flowIs(t, r, "build", 1, "failed"); string(s.Result) != "{\"reason\":\"no time\uFFFD\"}" || len(s.Incomplete()) != 3 {
		t.Errorf("the result of the failed flow is %s, incomplete are %v", s.Result, s.Incomplete())
	}

	again := need(tavern.WorkflowsOf(st).Start(ctx, "suite", tavern.FlowOptions{ID: "moves", Owner: "agent/a", Input: events.Raw(`{"n": 1.0}`)}))
	flowIs(t, again, "ran", 3, "completed")
	if _, err := tavern.WorkflowsOf(st).Start(ctx, "suite", tavern.FlowOptions{ID: "moves", Owner: "agent/b"}); !errors.Is(err, tally.ErrExists) {
		t.Errorf("another start with the same id: %v", err)
	}
	if _, err := tavern.FlowOf(st, "none").State(ctx); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("read a missing flow: %v", err)
	}
}

func flowNested(t *testing.T, st *tally.Store) {
	ctx, f := t.Context(), flowStart(t, st, "release", "nested")
	must(t, f.Move(ctx, "test"))
	s := flowIs(t, f, "test", 2, "")
	child := tavern.FlowOf(st, s.Child)
	c := flowIs(t, child, "run", 1, "")
	if s.Child != "nested#2" || c.Run.Owner != "flow/nested" || c.Run.Parent == nil || *c.Run.Parent != (events.Lineage{Session: "flow/nested", Run: "nested"}) {
		t.Errorf("the child %q is %+v, its parent %+v", s.Child, c.Run, c.Run.Parent)
	}
	e := flowRefused[*tavern.FlowChildError](t, st, "a move before the child is over", func() error { return f.Move(ctx, "ship") })
	if e != nil && e.Child != "nested#2" {
		t.Errorf("the move was refused with %+v", e)
	}
	must(t, child.Move(ctx, "ran"))
	flowRefused[*tavern.FlowChildError](t, st, "a move before the child is ended", func() error { return f.Move(ctx, "build") })
	must(t, child.End(ctx, nil))
	must(t, f.Move(ctx, "build"))
	must(t, f.Move(ctx, "test"))
	if s := flowIs(t, f, "test", 4, ""); s.Child != "nested#4" {
		t.Errorf("the second visit started the flow %q", s.Child)
	}
	flowIs(t, tavern.FlowOf(st, "nested#4"), "run", 1, "")

	// A child that does not complete is a failed step. No worker drives the flow, so the rule of the state applies.
	must(t, tavern.FlowOf(st, "nested#4").Fail(ctx, "red"))
	if why := need(f.Recover(ctx)); why != `flow "nested#4" ended failed` {
		t.Errorf("Recover returned %q", why)
	}
	s = flowIs(t, f, "triage", 5, "")
	if status := s.Steps()[1].Status; status != tavern.StepOpen { // it can come back over build
		t.Errorf("the status of the failed step is %s", status)
	}
	must(t, f.Move(ctx, "given up"))
	if s := flowIs(t, f, "given up", 6, ""); s.Steps()[1].Status != tavern.StepLost || s.Steps()[0].Status != tavern.StepDone || s.Steps()[3].Status != tavern.StepSkipped {
		t.Errorf("the steps in the end are %v", s.Steps())
	}
}

// flowLost lets a worker claim the flow and be lost at once.
func flowLost(t *testing.T, f *tavern.Flow, worker string) *tavern.FlowClaim {
	t.Helper()
	c, err := f.Claim(t.Context(), worker, time.Nanosecond)
	must(t, err)
	return c
}

func flowRecovers(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	f := flowStart(t, st, "release", "recovers")
	if d, err := f.Due(ctx, time.Now().AddDate(1, 0, 0)); err != nil || len(d.Parts) > 0 || !d.Next.IsZero() {
		t.Errorf("without a worker: due %+v, error %v", d, err)
	}
	c := need(f.Claim(ctx, "w0", time.Hour))
	if d, err := f.Due(ctx, c.Until.Add(-time.Second)); err != nil || len(d.Parts) > 0 || !d.Next.Equal(c.Until) {
		t.Errorf("with a lease until %v: due %+v, error %v", c.Until, d, err)
	}
	if d, err := f.Due(ctx, c.Until); err != nil || len(d.Parts) != 1 || d.Why != `worker "w0" was lost` {
		t.Errorf("after the lease: due %+v, error %v", d, err)
	}
	if why := need(f.Recover(ctx)); why != "" {
		t.Errorf("the lease has not ended by the log's time, but Recover returned %q", why)
	}
	must(t, c.Release(ctx))

	for try := range 2 { // build is tried three times by default
		flowLost(t, f, "w")
		need(f.Recover(ctx))
		if s := flowIs(t, f, "build", int64(try+2), ""); s.Attempt != try+2 || s.Held || s.Run.Attempt != int64(try+2) || s.Run.Worker != "" {
			t.Errorf("after %d recoveries the flow is %+v", try+1, s)
		}
	}
	flowLost(t, f, "w")
	flowRefused[*tally.LeaseError](t, st, "a move of what waits for its recovery", func() error { return f.Move(ctx, "test") })
	if why := need(f.Recover(ctx)); why != `worker "w" was lost, in attempt 3 of 3` {
		t.Errorf("Recover returned %q", why)
	}
	flowIs(t, f, "build", 3, "failed")

	// A recovery state: the worker reports the failure, and keeps its claim.
	f = flowStart(t, st, "release", "recovers-2")
	c = need(f.Claim(ctx, "w", time.Hour))
	must(t, c.Move(ctx, "test"))
	flowRefused[*tavern.FlowChildError](t, st, "recovery with the child under way", func() error { return c.Recover(ctx, "no") })
	must(t, tavern.FlowOf(st, "recovers-2#2").Fail(ctx, "red"))
	if why := need(f.Recover(ctx)); why != "" {
		t.Errorf("with a worker Recover returned %q", why)
	}
	must(t, c.Recover(ctx, "the suite is red"))
	flowIs(t, f, "triage", 3, "")
	must(t, c.Move(ctx, "build"))
	must(t, c.Move(ctx, "test"))

	// If a worker is lost while the child runs, the child continues.
	flowLost(t, tavern.FlowOf(st, "recovers-2"), "w")
	if why := need(f.Recover(ctx)); why != `worker "w" was lost` {
		t.Errorf("Recover returned %q", why)
	}
	flowIs(t, tavern.FlowOf(st, "recovers-2#5"), "run", 1, "")
	flowIs(t, f, "test", 5, "")
	must(t, tavern.FlowOf(st, "recovers-2#5").Move(ctx, "ran"))
	must(t, tavern.FlowOf(st, "recovers-2#5").End(ctx, nil))
	must(t, f.Move(ctx, "ship"))
	must(t, f.Move(ctx, "shipped"))
	flowLost(t, f, "w") // in an end state no work is left
	need(f.Recover(ctx))
	flowIs(t, f, "shipped", 7, "completed")

	// A claim first makes the decision that is due.
	f = flowStart(t, st, "suite", "recovers-3") // its rule is to fail
	flowLost(t, f, "w")
	if _, err := f.Claim(ctx, "other", 0); err == nil {
		t.Error("a flow that has to fail was claimed")
	}
	flowIs(t, f, "run", 1, "failed")

	// A recovery state that cannot be entered fails the flow.
	w := tavern.WorkflowsOf(st)
	need(w.Create(ctx, "into", []byte(`{"initial":"a","recovery":{"state":"b"},"states":{"a":{"to":["z"]},"b":{"to":["z"],"flow":"gone"},"z":{"end":true}}}`)))
	f = flowStart(t, st, "into", "recovers-4")
	flowLost(t, f, "w")
	need(f.Recover(ctx))
	if s := flowIs(t, f, "a", 1, "failed"); !strings.Contains(string(s.Result), `cannot be entered`) {
		t.Errorf("the result of the failed flow is %s", s.Result)
	}
}

func flowFences(t *testing.T, st *tally.Store) {
	ctx, f := t.Context(), flowStart(t, st, "release", "fences")
	stopped := flowLost(t, f, "stopped")
	late := func(c *tavern.FlowClaim) map[string]func() error {
		return map[string]func() error{
			"move": func() error { return c.Move(ctx, "test") }, "renew": func() error { return second(c.Renew(ctx)) }, "release": func() error { return c.Release(ctx) },
			"end": func() error { return c.End(ctx, nil) }, "fail": func() error { return c.Fail(ctx, "no") }, "recover": func() error { return c.Recover(ctx, "no") },
		}
	}
	must(t, second(stopped.Renew(ctx))) // the lease has ended, and no process has noticed
	flowRefused[*tally.LeaseError](t, st, "a move by hand", func() error { return f.Move(ctx, "test") })
	need(f.Recover(ctx))
	for what, do := range late(stopped) {
		flowRefused[*tally.FencedError](t, st, what+" after recovery", do)
	}
	c := need(f.Claim(ctx, "w", time.Hour))
	held := flowRefused[*tally.LeaseError](t, st, "a second worker", func() error { return second(f.Claim(ctx, "stopped", 0)) })
	if held != nil && (held.Lease.Holder != "w" || !held.Lease.Until.Equal(c.Until)) {
		t.Errorf("the flow is held by %+v, want until %v", held, c.Until)
	}
	for what, do := range late(stopped) {
		flowRefused[*tally.FencedError](t, st, what+" after another claim", do)
	}
	again := need(f.Claim(ctx, "w", time.Hour)) // it was started again
	for what, do := range late(c) {
		flowRefused[*tally.FencedError](t, st, what+" of its earlier life", do)
	}
	must(t, again.Release(ctx))
	for what, do := range late(again) {
		flowRefused[*tally.FencedError](t, st, what+" after its release", do)
	}
	must(t, f.Move(ctx, "test"))

	// Records of a worker that lost its claim, written without the handles, have no effect.
	to := &events.RunProgressed{Run: events.RunRef{Kind: "workflow", ID: "fences"}, Kind: "moved", State: &events.StateChange{From: "test", To: "shipped"}, Fence: stopped.Fence}
	_, err := st.Session("flow/fences").Append(ctx, log.Any, to)
	must(t, err)
	if s := flowIs(t, f, "test", 3, ""); len(s.Run.Fenced) != 1 {
		t.Errorf("the fenced records are %v", s.Run.Fenced)
	}
	for _, worker := range []string{"", "\xff"} {
		flowRefused[*events.InvalidError](t, st, "a worker without a name", func() error { return second(f.Claim(ctx, worker, 0)) })
	}
}

func flowOrphans(t *testing.T, st *tally.Store) {
	ctx, f := t.Context(), flowStart(t, st, "release", "orphan")
	must(t, f.Move(ctx, "test"))
	s := need(f.State(ctx))
	gone, window := s.EndedAt.Add(time.Hour), 10*time.Minute
	for name, x := range map[string]struct {
		gone, now time.Time
		next      time.Time
	}{
		"its owner lives":       {time.Time{}, gone.AddDate(1, 0, 0), time.Time{}},
		"in the window":         {gone, gone.Add(window - time.Millisecond), gone.Add(window)},
		"its owner goes later":  {gone, gone.AddDate(-1, 0, 0), gone.Add(window)},
		"the window of nothing": {time.Time{}, time.Time{}, time.Time{}},
	} {
		if d, err := f.Orphaned(s, x.gone, window, x.now); err != nil || len(d.Parts) > 0 || !d.Next.Equal(x.next) {
			t.Errorf("%s: due %+v, error %v", name, d, err)
		}
	}
	d := need(f.Orphaned(s, gone, window, gone.Add(window)))
	twice := need(f.Orphaned(s, gone, window, gone.Add(window)))
	need(st.AppendAll(ctx, d.Parts...))
	before := flowRecords(t, st)
	need(st.AppendAll(ctx, twice.Parts...)) // two processes that decide at once decide once
	if n := flowRecords(t, st) - before; n != 0 {
		t.Errorf("a repeated decision added %d records", n)
	}
	s = flowIs(t, f, "test", 2, tavern.OutcomeOrphaned)
	if d := need(f.Orphaned(s, gone, window, gone.AddDate(1, 0, 0))); len(d.Parts) > 0 {
		t.Errorf("an ended flow is an orphan: %+v", d)
	}

	// The flow that its state started has lost its owner as well. A decision whose basis has changed has no effect.
	child := tavern.FlowOf(st, s.Child)
	c := need(child.State(ctx))
	d = need(child.Orphaned(c, s.EndedAt, 0, s.EndedAt))
	must(t, child.Move(ctx, "run"))
	if _, err := st.AppendAll(ctx, d.Parts...); !errors.Is(err, log.ErrConflict) {
		t.Errorf("a decision whose basis has changed: %v", err)
	}
	c = need(child.State(ctx))
	d = need(child.Orphaned(c, s.EndedAt, 0, s.EndedAt))
	need(st.AppendAll(ctx, d.Parts...))
	flowIs(t, child, "run", 2, tavern.OutcomeOrphaned)
}

// Handles have no state beside the log: new handles for each call behave the same, and the fold of the views agrees.
func flowFromLog(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	flowStart(t, st, "release", "fresh")
	must(t, tavern.FlowOf(st, "fresh").Move(ctx, "test"))
	must(t, tavern.FlowOf(st, "fresh#2").Move(ctx, "ran"))
	must(t, tavern.FlowOf(st, "fresh#2").End(ctx, nil))
	need(tavern.FlowOf(st, "fresh").Claim(ctx, "w", time.Hour))
	need(tavern.FlowOf(st, "fresh").Claim(ctx, "w", time.Hour))
	s := flowIs(t, tavern.FlowOf(st, "fresh"), "test", 2, "")
	o, err := st.Session("flow/fresh").Outline(ctx)
	must(t, err)
	run := o.Ledger().Run(events.RunRef{Kind: "workflow", ID: "fresh"})
	if diff := cmp.Diff(*run, s.Run); diff != "" || o.Ledger().Kind != events.KindFlow {
		t.Errorf("kind %s: %s", o.Ledger().Kind, diff)
	}
	if _, err := st.Session("flow/fresh").PlanRewind(ctx, "#1", ""); err == nil {
		t.Error("a rewind of a flow was planned")
	}
}

// A call without an acknowledgement is repeated, and stored once.
func TestFlowFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, w := t.Context(), tavern.WorkflowsOf(st)
		var rev projector.Revision
		call("Create", 1, func() (err error) { _, err = w.Create(ctx, "release", []byte(flowRelease)); return err })
		call("Create", 1, func() (err error) { rev, err = w.Create(ctx, "suite", []byte(flowSuite)); return err })
		call("Update", 1, func() error { return second(w.Update(ctx, "suite", rev.Offset, []byte(flowSuite))) })
		start := func() error { return second(w.Start(ctx, "release", tavern.FlowOptions{ID: "f", Owner: "agent/a"})) }
		call("Start", 3, start)
		call("Start, the same", 0, start)
		f := tavern.FlowOf(st, "f")
		s := need(f.State(ctx))
		call("Move into a state with a flow", 4, func() error { return f.MoveFrom(ctx, s, "test") })
		call("the same Move", 0, func() error { return f.MoveFrom(ctx, s, "test") })
		child := tavern.FlowOf(st, "f#2")
		call("Move of the child", 1, func() error { return child.Move(ctx, "ran") })
		call("End", 1, func() error { return child.End(ctx, nil) })
		call("the same End", 0, func() error { return child.End(ctx, nil) })
		var c *tavern.FlowClaim
		call("Claim", 1, func() (err error) { c, err = f.Claim(ctx, "w", time.Hour); return err })
		call("Renew", 1, func() error { return second(c.Renew(ctx)) })
		call("Move", 1, func() error { return c.Move(ctx, "ship") })
		call("Recover", 1, func() error { return c.Recover(ctx, "no net") })
		call("Release", 1, func() error { return c.Release(ctx) })
		call("Claim", 1, func() error { return second(f.Claim(ctx, "w", time.Nanosecond)) })
		call("Recover by rule", 1, func() error { return second(f.Recover(ctx)) })
		call("Fail, of what failed", 0, func() error {
			if err := f.Fail(ctx, "no"); !errors.As(err, new(*tavern.FlowOverError)) {
				return err
			}
			return nil
		})
		flowIs(t, f, "ship", 4, "failed")
	})
}

// An unreadable record of a flow may be a move, so the flow does not move. It can be failed, and it fails when its
// worker is lost. An unreadable record before the state was entered does not matter.
func TestFlowDamaged(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	st := need(tally.Open(t.Context(), logtest.OpenOn(t, mem, log.Config{}), tally.Config{}))
	ctx := t.Context()
	flowTemplates(t, st)
	damaged := func(id string) (*tavern.Flow, *tavern.FlowClaim) {
		f := flowStart(t, st, "suite", id)
		c := flowLost(t, f, "w")
		must(t, second(c.Renew(ctx)))
		mem.Damage(need(f.State(ctx)).Offset)
		if s, err := f.State(ctx); s == nil || s.Damaged == 0 || !isHole(err) {
			t.Errorf("the damaged flow is %+v, error %v", s, err)
		}
		return f, c
	}
	f, c := damaged("d1")
	for what, do := range map[string]func() error{"move": func() error { return c.Move(ctx, "ran") }, "renew": func() error { return second(c.Renew(ctx)) }} {
		flowRefusedRaw[*events.DamageError](t, what, do)
	}
	if why := need(f.Recover(ctx)); !strings.Contains(why, "cannot be read") {
		t.Errorf("Recover returned %q", why)
	}
	flowIs(t, f, "run", 1, "failed")
	f, _ = damaged("d2")
	must(t, f.Fail(ctx, "damaged"))
	f = flowStart(t, st, "suite", "d3")
	mem.Damage(need(f.State(ctx)).Entered - 1)
	must(t, f.Move(ctx, "ran"))
	must(t, f.End(ctx, nil))
}

func isHole(err error) bool {
	_, is := errors.AsType[*projector.HoleError](err)
	return is
}

// However many daemons look after flows, each decision is made once.
func TestFlowDaemons(t *testing.T) {
	l, ctx := logtest.Open(t), t.Context()
	st := need(tally.Open(ctx, l, tally.Config{}))
	w := flowTemplates(t, st)
	need(w.Create(ctx, "outer", []byte(`{"initial":"a","recovery":{"state":"b"},"states":{"a":{"to":["z"]},"b":{"to":["z"],"flow":"suite"},"z":{"end":true}}}`)))
	const flows = 10
	for n := range flows {
		flowLost(t, flowStart(t, st, "outer", fmt.Sprint("f", n)), "w")
	}
	var running sync.WaitGroup
	for n := range 4 {
		other := need(tally.Open(ctx, l, tally.Config{Source: []string{"urn:one", "urn:two"}[n%2]}))
		running.Go(func() {
			for k := range flows {
				if _, err := tavern.FlowOf(other, fmt.Sprint("f", k)).Recover(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	for n := range flows {
		s := flowIs(t, tavern.FlowOf(st, fmt.Sprint("f", n)), "b", 2, "")
		if s.Run.Starts != 3 || s.Run.Attempt != 2 { // at the start, by w, and after w
			t.Errorf("the state was started %d times, attempt %d", s.Run.Starts, s.Run.Attempt)
		}
		flowIs(t, tavern.FlowOf(st, s.Child), "run", 1, "")
	}
}

// Input and result of a flow may be as large as a turn.
func TestFlowLarge(t *testing.T) {
	testkit.OnlyFull(t, "TestFlows plays small flows")
	testkit.NotUnderRace(t)
	st := storetest.Open(t, "memory")
	flowTemplates(t, st)
	large := events.Raw(`"` + strings.Repeat("x", 9<<20) + `"`)
	f := need(tavern.WorkflowsOf(st).Start(t.Context(), "suite", tavern.FlowOptions{ID: "large", Input: large}))
	must(t, f.Move(t.Context(), "ran"))
	must(t, f.End(t.Context(), large))
	if s := flowIs(t, f, "ran", 2, "completed"); len(s.Input) != len(large) || len(s.Result) != len(large) {
		t.Errorf("the input has %d bytes and the result %d", len(s.Input), len(s.Result))
	}
}

// A worker that renews its claim many times reads only new records, not the whole flow.
func TestFlowRenewed(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	flowTemplates(t, st)
	c := need(flowStart(t, st, "suite", "long").Claim(t.Context(), "w", time.Minute))
	renewals := func() int64 {
		before := int64(st.Log.RecordsRead())
		for range 50 {
			must(t, second(c.Renew(t.Context())))
		}
		return int64(st.Log.RecordsRead()) - before
	}
	first, second := renewals(), renewals()
	if second > first+first/4 {
		t.Errorf("50 renewals read %d records, the next 50 read %d", first, second)
	}
	must(t, c.Move(t.Context(), "ran"))
	must(t, c.End(t.Context(), nil))
	flowIs(t, tavern.FlowOf(st, "long"), "ran", 2, "completed")
}

// A worker whose renewal got no answer does not assume a longer lease.
func TestFlowRenewalLost(t *testing.T) {
	down := false
	st := storetest.Faulty(t, func() logtest.Fault {
		if down {
			return logtest.Dropped
		}
		return logtest.None
	})
	flowTemplates(t, st)
	c := need(flowStart(t, st, "suite", "lost").Claim(t.Context(), "w", time.Minute))
	until, begun := c.Until, need(st.LogTime(t.Context()))
	for need(st.LogTime(t.Context())).Sub(begun) < 2*time.Millisecond {
	}
	down = true
	if renewed, err := c.Renew(t.Context()); !errors.Is(err, log.ErrUnknown) || !renewed.IsZero() {
		t.Errorf("got %v, and the worker holds the flow until %v", err, renewed)
	}
	down = false
	if renewed := need(c.Renew(t.Context())); !renewed.After(until) {
		t.Errorf("after the renewal the worker holds the flow until %v", renewed)
	}
}

// If several callers move a flow at once, each move is one step, in one order, and each is allowed in its state.
func TestFlowRaces(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		flowTemplates(t, st)
		f := flowStart(t, st, "suite", "race")
		s := need(f.State(t.Context()))
		const writers = 8
		moved := make(chan string, writers)
		for n := range writers {
			go func() {
				to := []string{"run", "ran"}[n%2]
				if err := tavern.FlowOf(st, "race").MoveFrom(context.WithoutCancel(t.Context()), s, to); err != nil {
					to = ""
				}
				moved <- to
			}()
		}
		won := map[string]int{}
		for range writers {
			won[heard(t, moved, "the answer to a move")]++
		}
		now := need(f.State(t.Context()))
		if now.Step != 2 || won[now.State] != writers/2 || won[""] != writers/2 {
			t.Errorf("%v callers moved the flow, which is in step %d, %q", won, now.Step, now.State)
		}
	})
}
