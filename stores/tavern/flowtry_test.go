package tavern_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/stores/tavern"
)

// flowTry is a random recovery of a flow.
type flowTry struct {
	Driver string // that has the flow before: nobody, a worker that is lost, or a worker that reports the failure
	By     string // that recovers it, unless the worker does
	Moves  int    // of the flow before
}

func drawFlowTry(t *rapid.T) flowTry {
	return flowTry{
		Driver: rapid.SampledFrom([]string{"nobody", "lost", "reports"}).Draw(t, "driver"),
		By:     rapid.SampledFrom([]string{"a caller", "a daemon", "the next worker"}).Draw(t, "by"),
		Moves:  rapid.IntRange(0, 2).Draw(t, "moves"),
	}
}

// tryRules are the rules of recovery of the states a, which starts another flow, and b.
type tryRules map[string]string

const tryAttempts = 3

// after returns the state and the attempt that follow a state's failure, or "" if the flow fails.
func (r tryRules) after(s *tavern.FlowState) (state string, attempt int) {
	switch rule := r[s.State]; {
	case rule == "restart" && s.Attempt < tryAttempts:
		return s.State, s.Attempt + 1
	case rule == "restart" || rule == "fail":
		return "", 0
	default:
		return rule, 1
	}
}

func (r tryRules) json(state string) string {
	switch rule := r[state]; rule {
	case "restart":
		return fmt.Sprintf(`{"restart":%d}`, tryAttempts)
	case "fail":
		return `"fail"`
	default:
		return fmt.Sprintf(`{"state":%q}`, rule)
	}
}

// endChild ends the flow that a state started.
func endChild(t *testing.T, st *tally.Store, s *tavern.FlowState, fails bool) {
	t.Helper()
	child := tavern.FlowOf(st, s.Child)
	if s.Child == "" || need(child.State(t.Context())).Over() {
		return
	}
	if fails {
		must(t, child.Fail(t.Context(), "so"))
		return
	}
	must(t, child.Move(t.Context(), "ran"))
	must(t, child.End(t.Context(), nil))
}

// playTry lets a flow fail, and recovers it. It returns a mistake, or "", and whether the flow goes on.
func playTry(t *testing.T, st *tally.Store, f *tavern.Flow, rules tryRules, p flowTry) (wrong string, goesOn bool) {
	ctx := t.Context()
	for range p.Moves {
		s := need(f.State(ctx))
		endChild(t, st, s, false)
		must(t, f.Move(ctx, map[string]string{"a": "b", "b": "a"}[s.State]))
	}
	if p.Driver == "nobody" && need(f.State(ctx)).State == "b" { // where nothing fails without a worker
		must(t, f.Move(ctx, "a"))
	}
	var c *tavern.FlowClaim
	if p.Driver != "nobody" {
		c = need(f.Claim(ctx, "w", time.Minute))
	}
	before := need(f.State(ctx))
	endChild(t, st, before, true)
	if p.Driver == "lost" {
		time.Sleep(time.Minute)
	}
	state, attempt := rules.after(before)
	isClaimed := false
	switch {
	case p.Driver == "reports":
		must(t, c.Recover(ctx, "so"))
	case p.By == "a caller":
		need(f.Recover(ctx))
	case p.By == "a daemon":
		daemonDecides(t, daemonScan(st), need(st.LogTime(ctx)), daemonsOf(st, tavern.DaemonDispatch)...)
	default:
		_, err := f.Claim(ctx, "next", time.Minute)
		if isClaimed = err == nil; isClaimed == (state == "") {
			return fmt.Sprintf("the claim of the next worker: %v", err), false
		}
	}
	s := need(f.State(ctx))
	if state == "" {
		if s.Outcome() != "failed" {
			wrong = fmt.Sprintf("the flow is in %s with the outcome %q, want failed", s.State, s.Outcome())
		}
		return wrong, false
	}
	if s.State != state || s.Attempt != attempt || s.Step != before.Step+1 || s.Over() {
		return fmt.Sprintf("the flow is in %s, attempt %d, step %d, outcome %q; want %s, %d, %d", s.State, s.Attempt, s.Step, s.Outcome(), state, attempt, before.Step+1), false
	}
	if s.Child != "" && need(tavern.FlowOf(st, s.Child).State(ctx)).Over() {
		return fmt.Sprintf("the flow %s of the new try is over", s.Child), false
	}
	if p.Driver == "reports" {
		if !s.Held || s.Run.Claim != c.Fence || s.Run.Attempt != before.Run.Attempt {
			return fmt.Sprintf("the worker that reported the failure lost the flow: %+v", s.Run), false
		}
		must(t, c.Release(ctx))
		return "", true
	}
	if s.Run.Attempt != before.Run.Attempt+1 || s.Held != isClaimed || isClaimed != (s.Run.Worker == "next") {
		return fmt.Sprintf("try %d of the flow is held %v by %q, want try %d", s.Run.Attempt, s.Held, s.Run.Worker, before.Run.Attempt+1), false
	}
	if why := need(f.Recover(ctx)); why != "" {
		return fmt.Sprintf("the flow is recovered again: %s", why), false
	}
	if isClaimed {
		time.Sleep(time.Second)
		must(t, need(f.Claim(ctx, "next", time.Minute)).Release(ctx))
	}
	return "", true
}

func TestFlowTries(t *testing.T) {
	t.Run("net Q4 a flow that recovers begins the next try, whoever drove it", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			rules := rapid.SampledFrom([]tryRules{{"a": "restart", "b": "restart"}, {"a": "restart", "b": "a"}, {"a": "b", "b": "restart"}, {"a": "fail", "b": "restart"}, {"a": "b", "b": "fail"}}).Draw(rt, "rules")
			tries := rapid.SliceOfN(rapid.Custom(drawFlowTry), 1, 5).Draw(rt, "tries")
			wrong := ""
			onFakeClock(t, func(t *testing.T, st *tally.Store) {
				flowTemplates2(t, st)
				need(tavern.WorkflowsOf(st).Create(t.Context(), "tries", fmt.Appendf(nil, `{"initial":"a","states":{"a":{"to":["b"],"flow":"inner","recovery":%s},"b":{"to":["a","end"],"recovery":%s},"end":{"end":true}}}`,
					rules.json("a"), rules.json("b"))))
				f := need(tavern.WorkflowsOf(st).Start(t.Context(), "tries", tavern.FlowOptions{ID: "f"}))
				for n, p := range tries {
					var goesOn bool
					if wrong, goesOn = playTry(t, st, f, rules, p); wrong != "" {
						wrong = fmt.Sprintf("try %d, %+v: %s", n, p, wrong)
					}
					if !goesOn {
						break
					}
				}
			})
			if wrong != "" {
				rt.Fatal(wrong)
			}
		})
	})
}
