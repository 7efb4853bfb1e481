package tally_test

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
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

var panelOps = []string{"run", "run", "run", "append", "rewind", "rewind", "undo", "truncate", "set", "clear", "clearStack", "note", "select", "select", "prompt", "cost", "together", "restart"}

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

	calls int
	upto  int    // -1: all of them; else only the model moves, for so many calls
	tick  func() // after each call; may be nil
}

// call makes a call of the API and reports whether the model moves with it.
func (m *panelMachine) call(api func() error) bool {
	m.t.Helper()
	if m.upto >= 0 {
		m.calls++
		return m.calls <= m.upto
	}
	m.must(api())
	m.calls++
	if m.tick != nil {
		m.tick()
	}
	return true
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
	if m.upto < 0 {
		_, err := s.Histories(ctx) // every producer looks before it acts
		m.must(err)
	}
	prompt := fmt.Sprint("prompt ", op.b)
	switch op.name {
	case "run":
		m.run(s, op, prompt)
	case "append":
		var a tally.PanelAppend
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
		h := map[string][]tally.PanelTurn{modelPanel[op.a%3]: append(turns("summary", prompt), o.histories[modelPanel[op.a%3]]...)}
		if m.call(func() error { return s.SetHistories(ctx, h) }) {
			o.histories = h
			o.disturb()
		}
	case "clear":
		if m.call(func() error { return s.ClearHistories(ctx) }) {
			o.histories = make(map[string][]tally.PanelTurn)
			o.disturb()
		}
	case "clearStack":
		if m.call(func() error { return s.ClearRewindStack(ctx, "clear") }) {
			o.stack = nil
		}
	case "restart":
		if m.upto < 0 {
			m.st = m.reopen(m.st)
			m.open()
		}
	default:
		m.say(s, op, prompt)
	}
}

// lengths compares what an append was told, where one was made.
func (m *panelMachine) lengths(a tally.PanelAppend, want map[string]int) {
	m.t.Helper()
	if m.upto < 0 {
		m.equal("lengths", a.Lengths, want)
	}
}

// say makes the steps that no rewind takes back.
func (m *panelMachine) say(s *tally.Session, op panelOp, prompt string) {
	ctx, o, last := m.test.Context(), m.model, m.model.last()
	model, rating := modelPanel[op.a%3], []string{"", "good", "bad"}[op.b%3]
	switch op.name {
	case "note":
		if m.call(func() error { return s.UpdateLastRunNote(ctx, prompt) }) && last != nil {
			last.note = prompt
		}
	case "select":
		if m.call(func() error {
			return s.RecordSelection(ctx, tally.SelectionParams{SelectedModelID: model, Rating: rating})
		}) && last != nil {
			last.selected, last.rating = model, rating
			if rating == "bad" {
				last.selected = ""
			}
		}
	case "prompt":
		var added bool
		if m.call(func() (err error) { added, err = m.st.Prompts().Record(ctx, prompt); return err }) {
			if want := o.record(prompt); m.upto < 0 {
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

func (m *panelMachine) run(s *tally.Session, op panelOp, prompt string) {
	ctx, o := m.test.Context(), m.model
	m.runs++
	entry := errataEntry{saw: maps.Clone(o.histories), rows: len(o.rows)}
	var a tally.PanelAppend
	if m.call(func() (err error) { a, err = s.AppendHistories(ctx, modelPanel, op.responses(), prompt); return err }) {
		entry.lengths = o.append(modelPanel, op.texts(), prompt)
		m.lengths(a, entry.lengths)
	}
	var ref events.RunRef
	if m.call(func() (err error) {
		ref, err = s.PersistRunState(ctx, tally.PanelRun{Prompt: prompt, Responses: op.responses()})
		return err
	}) {
		o.rows = append(o.rows, &errataRow{prompt: prompt})
	}
	if m.call(func() error {
		_, err := s.PushRewindEntry(ctx, tally.RewindEntry{At: a.At, Run: ref.ID, Prompt: prompt, HistoryLengths: a.Lengths, FeedIndex: m.runs})
		return err
	}) {
		o.stack = append(slices.Clip(o.stack), entry)
	}
}

func (m *panelMachine) undo(s *tally.Session) {
	nothing := len(m.model.rewinds) == 0
	if m.call(func() error {
		_, err := s.UndoRewind(m.test.Context(), tally.WorkTree{})
		if nothing && errors.Is(err, projector.ErrNothingToUndo) {
			return nil
		}
		return err
	}) && !nothing {
		m.model.undo()
	}
}

func (m *panelMachine) rewind(s *tally.Session) {
	nothing := len(m.model.stack) == 0
	if m.call(func() error {
		_, err := s.Rewind(m.test.Context(), tally.WorkTree{})
		if nothing && errors.Is(err, tally.ErrNothingToRewind) {
			return nil
		}
		return err
	}) && !nothing {
		m.model.rewind(m.t)
	}
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
			m := &panelMachine{t: rt, test: t, upto: -1, st: st, reopen: func(st *tally.Store) *tally.Store { return st }}
			m.play(programs.Draw(rt, "program"))
		})
	})
	t.Run("local, closed and opened again", func(t *testing.T) {
		for i := range 30 {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, config.FileName), []byte("[store]\nbackend = \"local\"\ndir = \"store\"\n"), 0o600))
			m := &panelMachine{t: t, test: t, upto: -1, st: mustOpenDir(t, dir)}
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

// killedDir tells a copy of this test that it shall play a program and be killed.
const killedDir, killedProgram = "TALLY_TEST_PANEL_DIR", "TALLY_TEST_PANEL_PROGRAM"

// The owner of the store is killed while it plays a program: what the session is
// afterwards is what the model is after the calls that returned, or after the one
// more that was under way.
func TestPanelKilled(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		playKilled(t, dir)
		return
	}
	count := 6
	if os.Getenv("TALLY_SOAK") != "" {
		count = 1000
	}
	for i := range count {
		dir := filepath.Join(t.TempDir(), "store")
		done := killPlayer(t, dir, i)
		var failures []string
		for calls := done; calls <= done+1; calls++ {
			if failure := compareAfter(t, dir, killedSteps(i), calls); failure != "" {
				failures = append(failures, failure)
			}
		}
		if len(failures) == 2 {
			t.Errorf("program %d, killed after %d calls: neither\n%s\nnor\n%s", i, done, failures[0], failures[1])
		}
	}
}

// killedSteps gives a program of calls that follow each other.
func killedSteps(i int) []panelOp {
	return slices.DeleteFunc(panelProgram().Example(i), func(op panelOp) bool { return op.name == "together" || op.name == "restart" })
}

// playKilled plays a program and writes a line after each call that returned.
func playKilled(t *testing.T, dir string) {
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	must(t, err)
	defer st.Close()
	i, err := strconv.Atoi(os.Getenv(killedProgram))
	must(t, err)
	m := &panelMachine{t: t, test: t, upto: -1, st: st, model: newErrataModel(), tick: func() { fmt.Println("call") }}
	m.open()
	for _, op := range killedSteps(i) {
		m.step(op)
	}
}

// killPlayer lets a copy of this test play a program, kills it after some calls,
// and gives the number of calls that are known to have returned.
func killPlayer(t *testing.T, dir string, program int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanelKilled$")
	cmd.Env = append(os.Environ(), killedDir+"="+dir, killedProgram+"="+strconv.Itoa(program))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	done, limit := 0, 1+program*7%23
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() != "call" {
			continue
		}
		if done++; done == limit {
			must(t, cmd.Process.Kill()) // lines that are in the pipe already are counted, too
		}
	}
	_ = cmd.Wait() // it was killed, or it is through
	return done
}

// compareAfter says what differs between the session and the model after so many
// calls of a program.
func compareAfter(t *testing.T, dir string, program []panelOp, calls int) (difference string) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	must(t, err)
	defer st.Close()
	report := &reporter{}
	m := &panelMachine{t: report, test: t, st: st, upto: calls, model: newErrataModel()}
	m.open()
	for _, op := range program {
		m.step(op)
	}
	defer func() {
		if r := recover(); r != nil && r != any(report) {
			panic(r)
		}
		difference = report.text
	}()
	m.check()
	return ""
}

// reporter keeps the first failure and ends the check.
type reporter struct{ text string }

func (r *reporter) Helper() {}

func (r *reporter) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	panic(r)
}
