package tally_test

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
	"github.com/tallylog/tally/projector"
)

// errataModel is a plain model of what the original documents, in memory, with the
// changes that docs/from-errata.md names.
type errataModel struct {
	histories map[string][]tally.PanelTurn
	stack     []errataEntry
	rows      []*errataRow
	prompts   []string // newest first
	costs     map[string]*big.Rat
	rewinds   []errataState // before each rewind that is in effect
	markers   int
}

type errataEntry struct {
	lengths   map[string]int
	saw       map[string][]tally.PanelTurn // the histories before the run
	rows      int                          // number of runs before it
	disturbed bool                         // histories were replaced since: cutting to lengths is not going back
}

type errataRow struct {
	prompt, selected, rating, note string
	withdrawn                      bool
}

// errataState is what a rewind changes.
type errataState struct {
	histories map[string][]tally.PanelTurn
	stack     []errataEntry
	live      []bool // by run
}

func newErrataModel() *errataModel {
	return &errataModel{histories: make(map[string][]tally.PanelTurn), costs: make(map[string]*big.Rat)}
}

func (o *errataModel) append(panel []string, texts []string, prompt string) map[string]int {
	lengths := make(map[string]int)
	for _, id := range panel {
		lengths[id] = len(o.histories[id])
	}
	for i, id := range panel {
		if texts[i] != "" {
			o.histories[id] = append(slices.Clip(o.histories[id]), turns(prompt, texts[i])...)
		}
	}
	return lengths
}

func (o *errataModel) truncate(lengths map[string]int) {
	for id, n := range lengths {
		if n < len(o.histories[id]) {
			o.histories[id] = slices.Clip(o.histories[id][:n])
		}
		if len(o.histories[id]) == 0 {
			delete(o.histories, id)
		}
	}
}

func (o *errataModel) disturb() {
	for i := range o.stack {
		o.stack[i].disturbed = true
	}
}

func (o *errataModel) state() errataState {
	s := errataState{histories: maps.Clone(o.histories), stack: slices.Clone(o.stack)}
	for _, r := range o.rows {
		s.live = append(s.live, !r.withdrawn)
	}
	return s
}

// rewind pops an entry. Unless the histories were replaced since, the original's
// way of going back, cutting to lengths, leads to the same.
func (o *errataModel) rewind(t fataler) {
	before := o.state()
	e := o.stack[len(o.stack)-1]
	o.truncate(e.lengths)
	if !e.disturbed && !reflect.DeepEqual(o.histories, e.saw) {
		t.Fatalf("the model is at odds with the original: %v, %v", o.histories, e.saw)
	}
	o.histories, o.stack = maps.Clone(e.saw), o.stack[:len(o.stack)-1]
	for _, r := range o.rows[e.rows:] {
		r.withdrawn = true
	}
	o.rewinds, o.markers = append(o.rewinds, before), o.markers+1
}

func (o *errataModel) undo() {
	s := o.rewinds[len(o.rewinds)-1]
	o.rewinds, o.markers = o.rewinds[:len(o.rewinds)-1], o.markers-1
	o.histories, o.stack = maps.Clone(s.histories), slices.Clone(s.stack)
	for i, r := range o.rows {
		r.withdrawn = i >= len(s.live) || !s.live[i]
	}
}

func (o *errataModel) last() *errataRow {
	for _, r := range slices.Backward(o.rows) {
		if !r.withdrawn {
			return r
		}
	}
	return nil
}

func (o *errataModel) record(prompt string) bool {
	if len(o.prompts) > 0 && o.prompts[0] == prompt {
		return false
	}
	o.prompts = slices.Insert(o.prompts, 0, prompt)
	return true
}

func (o *errataModel) spend(model string, usd events.Amount) {
	if o.costs[model] == nil {
		o.costs[model] = new(big.Rat)
	}
	o.costs[model].Add(o.costs[model], mustRat(usd))
}

// panelOp is one step of a program.
type panelOp struct {
	name   string
	a, b   int
	handle int
}

var panelOps = []string{"run", "run", "run", "append", "rewind", "rewind", "undo", "truncate", "set", "clear", "clearStack", "note", "select", "bad", "prompt", "cost", "together", "restart"}

func panelProgram() *rapid.Generator[[]panelOp] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) panelOp {
		return panelOp{rapid.SampledFrom(panelOps).Draw(t, "op"), rapid.IntRange(0, 9).Draw(t, "a"), rapid.IntRange(0, 9).Draw(t, "b"), rapid.IntRange(0, 2).Draw(t, "handle")}
	}), 1, 40)
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

// panelMachine makes the steps of a program against the API and the model.
type panelMachine struct {
	t       fataler
	test    *testing.T // for its context
	st      *tally.Store
	reopen  func(*tally.Store) *tally.Store
	handles [3]*tally.Session
	model   *errataModel
	runs    int
}

func (m *panelMachine) open() {
	for i := range m.handles {
		m.handles[i] = m.st.Session("ses_model")
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
		m.t.Fatalf("%s:\nhave %+v\nwant %+v", what, have, want)
	}
}

var modelPanel = []string{"a", "b", "c"}

// texts gives what the models answer; "" is an error.
func (op panelOp) texts() []string {
	list := []string{"A", "", "C"}
	for i := range list {
		if (op.a+i)%3 > 0 {
			list[i] = fmt.Sprint("text ", op.a, i)
		}
	}
	return list
}

func (op panelOp) responses() []tally.PanelResponse {
	var list []tally.PanelResponse
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
	if _, err := s.Histories(ctx); err != nil { // every producer looks before it acts
		m.t.Fatalf("%v", err)
	}
	prompt := fmt.Sprint("prompt ", op.b)
	switch op.name {
	case "run":
		m.run(s, op, prompt)
	case "append":
		a, err := s.AppendHistories(ctx, modelPanel, op.responses(), prompt)
		m.must(err)
		m.equal("lengths", a.Lengths, o.append(modelPanel, op.texts(), prompt))
	case "rewind", "undo":
		m.move(s, op.name)
	case "truncate":
		lengths := map[string]int{modelPanel[op.a%3]: op.b, modelPanel[op.b%3]: op.a}
		m.must(s.TruncateHistories(ctx, lengths))
		o.truncate(lengths)
		o.disturb()
	case "set":
		h := map[string][]tally.PanelTurn{modelPanel[op.a%3]: append(turns("summary", prompt), o.histories[modelPanel[op.a%3]]...)}
		m.must(s.SetHistories(ctx, h))
		o.histories = h
		o.disturb()
	case "clear":
		m.must(s.ClearHistories(ctx))
		clear(o.histories)
		o.disturb()
	case "clearStack":
		m.must(s.ClearRewindStack(ctx, "clear"))
		o.stack = nil
	case "restart":
		m.st = m.reopen(m.st)
		m.open()
	default:
		m.say(s, op, prompt)
	}
}

// say makes the steps that no rewind takes back.
func (m *panelMachine) say(s *tally.Session, op panelOp, prompt string) {
	ctx, o := m.test.Context(), m.model
	last := o.last()
	switch op.name {
	case "note":
		m.must(s.UpdateLastRunNote(ctx, prompt))
		if last != nil {
			last.note = prompt
		}
	case "select":
		m.must(s.RecordSelection(ctx, tally.SelectionParams{SelectedModelID: modelPanel[op.a%3], Rating: []string{"", "good"}[op.b%2]}))
		if last != nil {
			last.selected, last.rating = modelPanel[op.a%3], []string{"", "good"}[op.b%2]
		}
	case "bad":
		m.must(s.RecordSelection(ctx, tally.SelectionParams{SelectedModelID: modelPanel[op.a%3], Rating: "bad"}))
		if last != nil {
			last.selected, last.rating = "", "bad"
		}
	case "prompt":
		added, err := m.st.Prompts().Record(ctx, prompt)
		m.must(err)
		m.equal("added", added, o.record(prompt))
	case "cost":
		usd := events.Amount(fmt.Sprintf("0.%d%d", op.a, op.b))
		m.must(s.AccumulateCost(ctx, tally.Cost{Model: modelPanel[op.a%3], USD: usd}))
		o.spend(modelPanel[op.a%3], usd)
	case "together":
		m.together(op)
	}
}

func (m *panelMachine) run(s *tally.Session, op panelOp, prompt string) {
	ctx, o := m.test.Context(), m.model
	m.runs++
	entry := errataEntry{saw: maps.Clone(o.histories), rows: len(o.rows)}
	a, err := s.AppendHistories(ctx, modelPanel, op.responses(), prompt)
	m.must(err)
	ref, err := s.PersistRunState(ctx, tally.PanelRun{Prompt: prompt, Responses: op.responses()})
	m.must(err)
	_, err = s.PushRewindEntry(ctx, tally.RewindEntry{At: a.At, Run: ref.ID, Prompt: prompt, HistoryLengths: a.Lengths, FeedIndex: m.runs})
	m.must(err)
	entry.lengths = o.append(modelPanel, op.texts(), prompt)
	m.equal("lengths", a.Lengths, entry.lengths)
	o.stack = append(slices.Clip(o.stack), entry)
	o.rows = append(o.rows, &errataRow{prompt: prompt})
}

func (m *panelMachine) move(s *tally.Session, name string) {
	ctx, o := m.test.Context(), m.model
	if name == "undo" {
		_, err := s.UndoRewind(ctx, tally.WorkTree{})
		if len(o.rewinds) == 0 {
			m.equal("nothing to undo", errors.Is(err, projector.ErrNothingToUndo) || errors.Is(err, tally.ErrNotFound), true)
			return
		}
		m.must(err)
		o.undo()
		return
	}
	_, err := s.Rewind(ctx, tally.WorkTree{})
	if len(o.stack) == 0 {
		m.equal("nothing to rewind", errors.Is(err, tally.ErrNothingToRewind), true)
		return
	}
	m.must(err)
	o.rewind(m.t)
}

// together lets all handles act at once, with what comes to the same in any order.
func (m *panelMachine) together(op panelOp) {
	ctx, o := m.test.Context(), m.model
	var group sync.WaitGroup
	errs := make([]error, len(m.handles))
	for i, s := range m.handles {
		group.Go(func() {
			if _, errs[i] = s.Histories(ctx); errs[i] != nil {
				return
			}
			_, err := s.AppendHistories(ctx, modelPanel[i:i+1], []tally.PanelResponse{answer(modelPanel[i], "together")}, "p")
			_, err2 := m.st.Prompts().Record(ctx, fmt.Sprint("together ", op.a))
			errs[i] = errors.Join(err, err2, s.AccumulateCost(ctx, tally.Cost{Model: "a", USD: "0.1"}))
		})
	}
	group.Wait()
	m.must(errors.Join(errs...))
	for _, id := range modelPanel {
		o.append([]string{id}, []string{"together"}, "p")
		o.record(fmt.Sprint("together ", op.a))
		o.spend("a", "0.1")
	}
	for i := range o.stack {
		o.stack[i].disturbed = true // other models' turns leave with a rewind
	}
}

// check compares everything that can be seen.
func (m *panelMachine) check() {
	m.t.Helper()
	ctx, s, o := m.test.Context(), m.st.Session("ses_model"), m.model
	h, err := s.Histories(ctx)
	m.must(err)
	m.equal("histories", len(h), len(o.histories))
	for id, want := range o.histories {
		m.equal("history of "+id, h[id], want)
	}
	n, err := s.RewindStackLen(ctx)
	m.must(err)
	m.equal("stack", n, len(o.stack))
	prompts, err := m.st.Prompts().List(ctx)
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

func (m *panelMachine) checkRuns(s *tally.Session) {
	m.t.Helper()
	rows, err := s.PanelRuns(m.test.Context())
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
	}
}

// Random programs of several handles do what the model of the original does.
func TestPanelModel(t *testing.T) {
	programs := panelProgram()
	t.Run("memory", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			l, err := log.OpenOn(t.Context(), logtest.NewMem(logtest.MemConfig{}), log.Config{})
			if err != nil {
				rt.Fatalf("%v", err)
			}
			st, err := tally.Open(t.Context(), l, tally.Config{})
			if err != nil {
				rt.Fatalf("%v", err)
			}
			defer st.Close()
			m := &panelMachine{t: rt, test: t, st: st, reopen: func(st *tally.Store) *tally.Store { return st }}
			m.play(programs.Draw(rt, "program"))
		})
	})
	t.Run("local, closed and opened again", func(t *testing.T) {
		for i := range 30 {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, config.FileName), []byte("[store]\nbackend = \"local\"\ndir = \"store\"\n"), 0o600))
			m := &panelMachine{t: t, test: t, st: mustOpenDir(t, dir)}
			m.reopen = func(st *tally.Store) *tally.Store {
				must(t, st.Close())
				return mustOpenDir(t, dir)
			}
			program := programs.Example(i)
			m.play(append(program[:min(len(program), 15)], panelOp{name: "restart"}))
			must(t, m.st.Close())
		}
	})
}

// mustOpenDir opens a store that the caller closes.
func mustOpenDir(t *testing.T, dir string) *tally.Store {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Dir: dir})
	must(t, err)
	return st
}
