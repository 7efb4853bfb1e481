package errata_test

import (
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/errata"
)

// errataModel is a plain model of the original's documented behaviour, in memory, with the changes that
// docs/from-errata.md lists.
type errataModel struct {
	histories map[string][]errata.Turn
	stack     []errataEntry
	rows      []*errataRow
	prompts   []string // newest first
	costs     map[string]*big.Rat
	rewinds   []errataState // before each rewind that is in effect
	markers   int           // number of markers of the runs that those withdrew
}

type errataEntry struct {
	lengths   map[string]int
	saw       map[string][]errata.Turn // the histories before the run
	rows      int                      // number of runs before it
	disturbed bool                     // histories were replaced since, so a truncation to lengths is not a rewind
}

type errataRow struct {
	prompt, selected, rating, note string
	withdrawn                      bool
}

// errataState is the state that a rewind changes.
type errataState struct {
	histories map[string][]errata.Turn
	stack     []errataEntry
	live      []bool // by run
	markers   int
}

func newErrataModel() *errataModel {
	return &errataModel{histories: make(map[string][]errata.Turn), costs: make(map[string]*big.Rat)}
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
	s := errataState{histories: maps.Clone(o.histories), stack: slices.Clone(o.stack), markers: o.markers}
	for _, r := range o.rows {
		s.live = append(s.live, !r.withdrawn)
	}
	return s
}

// rewind pops an entry. Unless the histories were replaced since, the original's truncation to lengths has the same
// result. Each withdrawn run leaves a marker: that of the entry, and those after it that were never pushed.
func (o *errataModel) rewind(t fataler) {
	before := o.state()
	e := o.stack[len(o.stack)-1]
	o.truncate(e.lengths)
	if !e.disturbed && !reflect.DeepEqual(o.histories, e.saw) {
		t.Fatalf("the model contradicts the original: %v, %v", o.histories, e.saw)
	}
	o.histories, o.stack = maps.Clone(e.saw), o.stack[:len(o.stack)-1]
	for _, r := range o.rows[e.rows:] {
		if !r.withdrawn {
			o.markers++
		}
		r.withdrawn = true
	}
	o.rewinds = append(o.rewinds, before)
}

func (o *errataModel) undo() {
	s := o.rewinds[len(o.rewinds)-1]
	o.rewinds, o.markers = o.rewinds[:len(o.rewinds)-1], s.markers
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

// A hundred random programs with several handles behave as the model of the original, and four with a real server
// that is closed and opened again.
func TestPanelModel(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	hundreds, local := 1, 4
	if testkit.Soak() {
		hundreds, local = 30, 100
	}
	programs := panelProgram()
	for i := range hundreds { // rapid draws a hundred each time
		t.Run(fmt.Sprint("memory, hundred ", i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { playInMemory(t, rt, programs.Draw(rt, "program")) })
		})
	}
	t.Run("local, closed and opened again", func(t *testing.T) {
		for i := range local {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, config.FileName), []byte("[store]\nbackend = \"local\"\ndir = \"store\"\n"), 0o600))
			m := &panelMachine{t: t, test: t, st: mustOpenDir(t, dir)}
			m.reopen = func(st *tally.Store) *tally.Store {
				must(t, st.Close())
				return mustOpenDir(t, dir)
			}
			m.play(append(seededProgram(i, 15), panelOp{name: "restart"}))
			must(t, m.st.Close())
		}
	})
}

func playInMemory(t *testing.T, rt *rapid.T, program []panelOp) {
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		rt.Fatalf("%v", err)
	}
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		rt.Fatalf("%v", err)
	}
	defer st.Close()
	m := &panelMachine{t: rt, test: t, st: st, reopen: func(st *tally.Store) *tally.Store { return st }}
	m.play(program)
}

// mustOpenDir opens a store that the caller closes.
func mustOpenDir(t *testing.T, dir string) *tally.Store {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir})
	must(t, err)
	return st
}
