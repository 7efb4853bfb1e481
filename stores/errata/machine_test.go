package errata_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
)

// panelOp is one step of a program.
type panelOp struct {
	name   string
	a, b   int
	handle int
}

var panelOps = []string{"run", "run", "run", "unpushed", "append", "rewind", "rewind", "undo", "truncate", "set", "clear", "clearStack", "note", "select", "select", "prompt", "cost", "together", "restart"}

func panelProgram() *rapid.Generator[[]panelOp] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) panelOp {
		return panelOp{rapid.SampledFrom(panelOps).Draw(t, "op"), rapid.IntRange(0, 9).Draw(t, "a"), rapid.IntRange(0, 9).Draw(t, "b"), rapid.IntRange(0, 2).Draw(t, "handle")}
	}), 1, 40)
}

// seededProgram returns a program with a number of steps. Programs drawn by rapid are usually short.
func seededProgram(seed, steps int) []panelOp {
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	list := make([]panelOp, steps)
	for i := range list {
		list[i] = panelOp{panelOps[r.IntN(len(panelOps))], r.IntN(10), r.IntN(10), r.IntN(3)}
	}
	return list
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

// panelMachine makes the steps of a program with the API and with the model.
type panelMachine struct {
	t       fataler
	test    *testing.T // for its context
	st      *tally.Store
	reopen  func(*tally.Store) *tally.Store
	handles [3]*errata.Session
	model   *errataModel
	runs    int

	replay *replay        // nil: the API is called; else only the model is changed
	tick   func(lane int) // called after each call; may be nil
}

// lanes are where calls of a program are made: sequentially, or in one of three concurrent goroutines.
const (
	mainLane  = 0
	laneCount = 4
)

// replay changes the model by the calls that are known to have been made.
type replay struct {
	left  [laneCount]int // calls in each lane
	stuck []int          // lanes with a further call
}

// move reports whether the next call of a lane was made.
func (r *replay) move(lane int) bool {
	if r.left[lane] > 0 {
		r.left[lane]--
		return true
	}
	if !slices.Contains(r.stuck, lane) {
		r.stuck = append(r.stuck, lane)
	}
	return false
}

// call calls the API and reports whether the model has to be changed.
func (m *panelMachine) call(api func() error) bool {
	m.t.Helper()
	if m.replay != nil {
		return m.replay.move(mainLane)
	}
	m.must(api())
	m.made(mainLane)
	return true
}

// made records that a call has returned.
func (m *panelMachine) made(lane int) {
	if m.tick != nil {
		m.tick(lane)
	}
}

func (m *panelMachine) open() {
	for i := range m.handles {
		m.handles[i] = errata.Of(m.st, "ses_model")
	}
}

func (m *panelMachine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%v", err)
	}
}

func (m *panelMachine) equal(what string, have, want any) {
	m.t.Helper()
	if !reflect.DeepEqual(have, want) {
		m.t.Fatalf("%s:\ngot  %+v\nwant %+v", what, have, want)
	}
}

var modelPanel = []string{"a", "b", "c"}

// texts returns the answers of the models; "" is an error.
func (op panelOp) texts() []string {
	list := []string{"A", "", "C"}
	for i := range list {
		if (op.a+i)%3 > 0 {
			list[i] = fmt.Sprint("text ", op.a, i)
		}
	}
	return list
}

func (op panelOp) responses() []errata.Response {
	var list []errata.Response
	for i, text := range op.texts() {
		r := answer(modelPanel[i], text)
		if text == "" {
			r.Error = "failed"
		}
		list = append(list, r)
	}
	return list
}

func (m *panelMachine) step(op panelOp) {
	ctx, s, o := m.test.Context(), m.handles[op.handle], m.model
	if m.replay == nil {
		_, err := s.Histories(ctx) // every producer reads before it acts
		m.must(err)
	}
	prompt := fmt.Sprint("prompt ", op.b)
	switch op.name {
	case "run", "unpushed":
		m.run(s, op, prompt)
	case "append":
		var a errata.Appended
		if m.call(func() (err error) { a, err = s.AppendHistories(ctx, modelPanel, op.responses(), prompt); return err }) {
			m.lengths(a, o.append(modelPanel, op.texts(), prompt))
		}
	case "rewind":
		m.rewind(s)
	case "undo":
		m.undo(s)
	case "truncate":
		lengths := map[string]int{modelPanel[op.a%3]: op.b, modelPanel[op.b%3]: op.a}
		if m.call(func() error { return s.TruncateHistories(ctx, lengths) }) {
			o.truncate(lengths)
			o.disturb()
		}
	case "set":
		h := map[string][]errata.Turn{modelPanel[op.a%3]: append(turns("summary", prompt), o.histories[modelPanel[op.a%3]]...)}
		if m.call(func() error { return s.SetHistories(ctx, h) }) {
			o.histories = h
			o.disturb()
		}
	case "clear":
		if m.call(func() error { return s.ClearHistories(ctx) }) {
			o.histories = make(map[string][]errata.Turn)
			o.disturb()
		}
	case "clearStack":
		if m.call(func() error { return s.ClearRewindStack(ctx, "clear") }) {
			o.stack = nil
		}
	case "restart":
		if m.replay == nil {
			m.st = m.reopen(m.st)
			m.open()
		}
	default:
		m.say(s, op, prompt)
	}
}

// lengths compares the returned lengths of an append, if it was made.
func (m *panelMachine) lengths(a errata.Appended, want map[string]int) {
	m.t.Helper()
	if m.replay == nil {
		m.equal("lengths", a.Lengths, want)
	}
}

// say makes the steps that a rewind does not undo.
func (m *panelMachine) say(s *errata.Session, op panelOp, prompt string) {
	ctx, o, last := m.test.Context(), m.model, m.model.last()
	model, rating := modelPanel[op.a%3], []string{"", "good", "bad"}[op.b%3]
	switch op.name {
	case "note":
		if m.call(func() error { return s.UpdateLastRunNote(ctx, prompt) }) && last != nil {
			last.note = prompt
		}
	case "select":
		if m.call(func() error {
			return s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: model, Rating: rating})
		}) && last != nil {
			last.selected, last.rating = model, rating
			if rating == "bad" {
				last.selected = ""
			}
		}
	case "prompt":
		var added bool
		if m.call(func() (err error) { added, err = errata.PromptsOf(m.st).Record(ctx, prompt); return err }) {
			if want := o.record(prompt); m.replay == nil {
				m.equal("added", added, want)
			}
		}
	case "cost":
		usd := events.Amount(fmt.Sprintf("0.%d%d", op.a, op.b))
		if m.call(func() error { return s.AccumulateCost(ctx, tally.Cost{Model: model, USD: usd}) }) {
			o.spend(model, usd)
		}
	case "together":
		m.together(op)
	}
}

// run makes the calls of a run. A run that is not pushed is the state left by a program that died just before the
// push.
func (m *panelMachine) run(s *errata.Session, op panelOp, prompt string) {
	ctx, o := m.test.Context(), m.model
	m.runs++
	entry := errataEntry{saw: maps.Clone(o.histories), rows: len(o.rows)}
	var a errata.Appended
	if m.call(func() (err error) { a, err = s.AppendHistories(ctx, modelPanel, op.responses(), prompt); return err }) {
		entry.lengths = o.append(modelPanel, op.texts(), prompt)
		m.lengths(a, entry.lengths)
	}
	var ref events.RunRef
	if m.call(func() (err error) {
		ref, err = s.PersistRunState(ctx, errata.Run{Prompt: prompt, Responses: op.responses()})
		return err
	}) {
		o.rows = append(o.rows, &errataRow{prompt: prompt})
	}
	if op.name == "unpushed" {
		return
	}
	if m.call(func() error {
		_, err := s.PushRewindEntry(ctx, errata.RewindEntry{At: a.At, Run: ref.ID, Prompt: prompt, HistoryLengths: a.Lengths, FeedIndex: m.runs})
		return err
	}) {
		o.stack = append(slices.Clip(o.stack), entry)
	}
}

func (m *panelMachine) undo(s *errata.Session) {
	nothing := len(m.model.rewinds) == 0
	if m.call(func() error {
		_, err := s.UndoRewind(m.test.Context(), errata.WorkTree{})
		if nothing && errors.Is(err, projector.ErrNothingToUndo) {
			return nil
		}
		return err
	}) && !nothing {
		m.model.undo()
	}
}

func (m *panelMachine) rewind(s *errata.Session) {
	nothing := len(m.model.stack) == 0
	if m.call(func() error {
		_, err := s.Rewind(m.test.Context(), errata.WorkTree{})
		if nothing && errors.Is(err, errata.ErrNothingToRewind) {
			return nil
		}
		return err
	}) && !nothing {
		m.model.rewind(m.t)
	}
}

// together makes concurrent calls with all handles whose result does not depend on their order.
func (m *panelMachine) together(op panelOp) {
	o, said := m.model, fmt.Sprint("together ", op.a)
	if m.replay == nil {
		m.actTogether(said)
	}
	for i, id := range modelPanel {
		for _, move := range []func(){
			func() { o.append([]string{id}, []string{said}, "p"); o.disturb() }, // other models' turns leave with a rewind
			func() { o.record(said) },
			func() { o.spend("a", "0.1") },
		} {
			if m.replay != nil && !m.replay.move(1+i) {
				break
			}
			move()
		}
	}
}

// actTogether makes the calls, those of each handle in a goroutine.
func (m *panelMachine) actTogether(said string) {
	m.t.Helper()
	ctx := m.test.Context()
	var group sync.WaitGroup
	errs := make([]error, len(m.handles))
	for i, s := range m.handles {
		group.Go(func() {
			if _, errs[i] = s.Histories(ctx); errs[i] != nil {
				return
			}
			for _, call := range []func() error{
				func() error {
					_, err := s.AppendHistories(ctx, modelPanel[i:i+1], []errata.Response{answer(modelPanel[i], said)}, "p")
					return err
				},
				func() error { _, err := errata.PromptsOf(m.st).Record(ctx, said); return err },
				func() error { return s.AccumulateCost(ctx, tally.Cost{Model: "a", USD: "0.1"}) },
			} {
				if errs[i] = call(); errs[i] != nil {
					return
				}
				m.made(1 + i)
			}
		})
	}
	group.Wait()
	m.must(errors.Join(errs...))
}

// check compares everything that can be read.
func (m *panelMachine) check() {
	m.t.Helper()
	ctx, s, o := m.test.Context(), errata.Of(m.st, "ses_model"), m.model
	h, err := s.Histories(ctx)
	m.must(err)
	m.equal("histories", len(h), len(o.histories))
	for id, want := range o.histories {
		m.equal("history of "+id, h[id], want)
	}
	n, err := s.RewindStackLen(ctx)
	m.must(err)
	m.equal("stack", n, len(o.stack))
	prompts, err := errata.PromptsOf(m.st).List(ctx)
	m.must(err)
	m.equal("prompts", len(prompts), len(o.prompts))
	m.equal("prompts", append([]string{}, prompts...), append([]string{}, o.prompts...))
	per, err := s.CostPerModel(ctx)
	m.must(err)
	want := make(map[string]events.Amount)
	for model, usd := range o.costs {
		want[model] = events.AmountOf(usd)
	}
	m.equal("costs", per, want)
	m.checkRuns(s)
}

func (m *panelMachine) checkRuns(s *errata.Session) {
	m.t.Helper()
	rows, err := s.Runs(m.test.Context())
	m.must(err)
	var have, want []string
	markers := 0
	for _, r := range rows {
		if r.IsMarker() {
			markers++
			continue
		}
		have = append(have, fmt.Sprint(r.Content.Prompt, "|", r.Summary.Selected, "|", r.Summary.Rating, "|", r.Summary.Note, "|", r.Withdrawn))
	}
	for _, r := range m.model.rows {
		note := r.note
		if r.withdrawn {
			note = "[rewound]"
			if r.note != "" {
				note += " " + r.note
			}
		}
		want = append(want, fmt.Sprint(r.prompt, "|", r.selected, "|", r.rating, "|", note, "|", r.withdrawn))
	}
	m.equal("runs", have, want)
	m.equal("markers", markers, m.model.markers)
}

// play makes a program and compares after each step.
func (m *panelMachine) play(program []panelOp) {
	m.model = newErrataModel()
	m.open()
	for _, op := range program {
		m.step(op)
		m.check()
		mustAgree(m.t, m.test, m.st, "ses_model")
	}
}
