package tavern_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// flowMachine is the plain model of a template. Its last state is the end.
type flowMachine struct {
	to       [][]int
	recovery []int // the state; -1: fail; -2: restart, twice
}

// drawMachine draws a template in which every state leads to the next one, and to others.
func drawMachine(t *rapid.T, label string) flowMachine {
	n := rapid.IntRange(2, 5).Draw(t, label)
	m := flowMachine{to: make([][]int, n), recovery: make([]int, n)}
	for i := range n - 1 {
		m.to[i] = []int{i + 1}
		for j := range n {
			if j != i+1 && rapid.IntRange(0, 2).Draw(t, "also") == 0 {
				m.to[i] = append(m.to[i], j)
			}
		}
		m.recovery[i] = rapid.SampledFrom([]int{-1, -2, -2, min(i+1, n-1)}).Draw(t, "recovery")
	}
	return m
}

func (m flowMachine) json() []byte {
	var b strings.Builder
	b.WriteString(`{"initial":"s0","states":{`)
	for i, to := range m.to[:len(m.to)-1] {
		names := make([]string, len(to))
		for k, j := range to {
			names[k] = fmt.Sprintf("%q", flowStateName(j))
		}
		rule := `"fail"`
		switch r := m.recovery[i]; {
		case r == -2:
			rule = `{"restart":2}`
		case r >= 0:
			rule = fmt.Sprintf(`{"state":"s%d"}`, r)
		}
		fmt.Fprintf(&b, `"s%d":{"to":[%s],"recovery":%s},`, i, strings.Join(names, ","), rule)
	}
	fmt.Fprintf(&b, `"s%d":{"end":true}}}`, len(m.to)-1)
	return []byte(b.String())
}

func flowStateName(i int) string { return fmt.Sprint("s", i) }

// flowModel is a flow of a machine.
type flowModel struct {
	machine flowMachine
	state   int
	step    int64
	attempt int
	outcome string
	worker  *tavern.FlowClaim // that drives it, or nil
	lost    bool
}

func (m *flowModel) enter(to int) {
	m.state, m.attempt = to, 1
	m.step++
}

// recover applies the rule of the state.
func (m *flowModel) recover() {
	m.worker, m.lost = nil, false
	switch r := m.machine.recovery[m.state]; {
	case m.state == len(m.machine.to)-1:
		m.outcome = "completed"
	case r == -2 && m.attempt < 2:
		m.attempt++
		m.step++
	case r >= 0:
		m.enter(r)
	default:
		m.outcome = "failed"
	}
}

// With random templates and random moves, by hand, by workers that hold a flow and by workers that lost it, over a log
// that loses publications and acknowledgements: flows are in the states of a plain model, and follow the template that
// they were started with.
func TestFlowLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		next := rapid.SampledFrom([]logtest.Fault{logtest.None, logtest.None, logtest.None, logtest.Dropped, logtest.AckLost})
		faults := rapid.SliceOfN(next, 40, 40).Draw(rt, "faults")
		n := 0
		st := storetest.Faulty(t, func() logtest.Fault {
			n++
			return faults[n%len(faults)]
		})
		defer st.Close()
		newLawRun(t, rt, st).run()
	})
}

// lawRun is a random program over a store and a model.
type lawRun struct {
	t     *testing.T
	rt    *rapid.T
	st    *tally.Store
	w     *tavern.Workflows
	now   flowMachine // the newest revision of the template
	at    events.Offset
	flows []*flowModel
	old   []*tavern.FlowClaim // of workers that lost their flow
	oldOf []int
}

func newLawRun(t *testing.T, rt *rapid.T, st *tally.Store) *lawRun {
	r := &lawRun{t: t, rt: rt, st: st, w: tavern.WorkflowsOf(st), now: drawMachine(rt, "states")}
	rev, err := r.w.Create(t.Context(), "m", r.now.json())
	r.must("create", err)
	r.at = rev.Offset
	return r
}

func (r *lawRun) must(what string, err error) {
	if err != nil {
		r.rt.Fatalf("%s: %v", what, err)
	}
}

func (r *lawRun) run() {
	for range rapid.IntRange(5, 25).Draw(r.rt, "steps") {
		switch what := rapid.IntRange(0, 9).Draw(r.rt, "what"); {
		case what == 0 || len(r.flows) == 0:
			r.start()
		case what == 1:
			r.update()
		case what == 2:
			r.claim()
		case what == 3:
			r.recover()
		case what == 4:
			r.late()
		default:
			r.move()
		}
		r.check()
	}
}

func (r *lawRun) flow() (int, *flowModel, *tavern.Flow) {
	i := rapid.IntRange(0, len(r.flows)-1).Draw(r.rt, "flow")
	return i, r.flows[i], tavern.FlowOf(r.st, fmt.Sprint("f", i))
}

func (r *lawRun) start() {
	_, err := r.w.Start(r.t.Context(), "m", tavern.FlowOptions{ID: fmt.Sprint("f", len(r.flows))})
	r.must("start", err)
	m := &flowModel{machine: r.now}
	m.enter(0)
	r.flows = append(r.flows, m)
}

func (r *lawRun) update() {
	r.now = drawMachine(r.rt, "states")
	rev, err := r.w.Update(r.t.Context(), "m", r.at, r.now.json())
	r.must("update", err)
	r.at = rev.Offset
}

// move moves a flow, or ends it in its end state, by its worker or by hand.
func (r *lawRun) move() {
	_, m, f := r.flow()
	to := rapid.IntRange(0, len(m.machine.to)-1).Draw(r.rt, "to")
	by := f.Move
	if m.worker != nil {
		by = m.worker.Move
	}
	allowed := m.outcome == "" && slices.Contains(m.machine.to[m.state], to)
	if m.outcome == "" && m.state == len(m.machine.to)-1 {
		end := f.End
		if m.worker != nil {
			end = m.worker.End
		}
		r.must("end", end(r.t.Context(), nil))
		m.outcome, m.worker = "completed", nil
		return
	}
	err := by(r.t.Context(), flowStateName(to))
	if (err == nil) != allowed {
		r.rt.Fatalf("from s%d of %v, outcome %q, to s%d: %v", m.state, m.machine.to, m.outcome, to, err)
	}
	if allowed {
		m.enter(to)
	}
}

// claim lets a worker claim a flow. The worker may be lost at once.
func (r *lawRun) claim() {
	i, m, f := r.flow()
	lease := rapid.SampledFrom([]time.Duration{time.Hour, time.Nanosecond}).Draw(r.rt, "lease")
	if m.lost && m.outcome == "" {
		r.lose(i, m)
		m.recover()
	}
	c, err := f.Claim(r.t.Context(), "w", lease)
	if (err == nil) != (m.outcome == "") {
		r.rt.Fatalf("claim a flow with the outcome %q: %v", m.outcome, err)
	}
	if err == nil {
		r.lose(i, m)
		m.worker, m.lost = c, lease == time.Nanosecond
	}
}

// lose takes a flow from its worker.
func (r *lawRun) lose(i int, m *flowModel) {
	if m.worker != nil {
		r.old, r.oldOf = append(r.old, m.worker), append(r.oldOf, i)
	}
}

func (r *lawRun) recover() {
	i, m, f := r.flow()
	why, err := f.Recover(r.t.Context())
	due := m.lost && m.outcome == ""
	if err != nil || (why != "") != due {
		r.rt.Fatalf("Recover with a lost worker %v: %q, error %v", m.lost, why, err)
	}
	if due {
		r.lose(i, m)
		m.recover()
	}
}

// late lets a worker that lost its claim continue.
func (r *lawRun) late() {
	if len(r.old) == 0 {
		return
	}
	k := rapid.IntRange(0, len(r.old)-1).Draw(r.rt, "late")
	m := r.flows[r.oldOf[k]]
	for _, to := range m.machine.to[m.state] {
		err := r.old[k].Move(r.t.Context(), flowStateName(to))
		_, fenced := errors.AsType[*tally.FencedError](err)
		_, over := errors.AsType[*tavern.FlowOverError](err)
		if !fenced && !over || over != (m.outcome != "") {
			r.rt.Fatalf("a move to s%d by a worker that lost its claim: %v", to, err)
		}
	}
}

func (r *lawRun) check() {
	for i, m := range r.flows {
		s, err := tavern.FlowOf(r.st, fmt.Sprint("f", i)).State(r.t.Context())
		r.must("state", err)
		held := m.worker != nil && m.outcome == ""
		if s.State != flowStateName(m.state) || s.Step != m.step || s.Attempt != m.attempt || s.Outcome() != m.outcome || s.Held != held {
			r.rt.Fatalf("f%d is in %s, step %d, attempt %d, %q, held %v; want s%d, %d, %d, %q, %v",
				i, s.State, s.Step, s.Attempt, s.Outcome(), s.Held, m.state, m.step, m.attempt, m.outcome, m.worker != nil)
		}
		if allowed := s.Allowed(); m.outcome == "" && len(allowed) != len(m.machine.to[m.state]) {
			r.rt.Fatalf("f%d leads to %v, want %v", i, allowed, m.machine.to[m.state])
		}
	}
}

// If many callers move a flow at once, each from the state that it has read, every step is made once, and from the one
// before it.
func TestFlowOneStepOnce(t *testing.T) {
	meet := &meeting{Backend: memlog.New(memlog.Config{})}
	st := need(tally.Open(t.Context(), logtest.OpenOn(t, meet, log.Config{}), tally.Config{}))
	defer st.Close()
	need(tavern.WorkflowsOf(st).Create(t.Context(), "m", []byte(`{"initial":"a","states":{"a":{"to":["b","c"]},"b":{"to":["a"]},"c":{"to":["a","z"]},"z":{"end":true}}}`)))
	f := need(tavern.WorkflowsOf(st).Start(t.Context(), "m", tavern.FlowOptions{ID: "f"}))
	var mu sync.Mutex
	made := int64(1)
	for k := range 40 {
		s := need(f.State(t.Context())) // all callers have read it
		var running sync.WaitGroup
		meet.expect(8)
		for n := range 8 {
			running.Go(func() {
				defer meet.leave()
				allowed := s.Allowed()
				to := allowed[(n+k)%len(allowed)]
				if to == "z" {
					to = "a"
				}
				src := need(st.In(st.Namespace()))
				switch err := tavern.FlowOf(src, "f").MoveFrom(t.Context(), s, to); {
				case err == nil:
					mu.Lock()
					made = max(made, s.Step+1)
					mu.Unlock()
				case !errors.Is(err, log.ErrConflict):
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	state, step := "", int64(0)
	for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: f.Subject()}) {
		must(t, err)
		p, err := events.Decode(rec.Type, rec.Data)
		must(t, err)
		if p, ok := p.(*events.RunProgressed); ok {
			if p.State.From != state || p.Step != step+1 {
				t.Fatalf("step %d comes from %q, but the step before is %d in %q", p.Step, p.State.From, step, state)
			}
			state, step = p.State.To, p.Step
		}
	}
	if step != made {
		t.Errorf("the flow is in step %d after %d moves", step, made)
	}
}
