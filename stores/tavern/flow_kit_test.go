package tavern_test

import (
	"errors"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// flowRelease is a template with each rule of recovery, and a state with its own flow.
const flowRelease = `{
  "title": "Release",
  "initial": "build",
  "recovery": "restart",
  "states": {
    "build":  {"to": ["test"]},
    "test":   {"to": ["build", "ship"], "flow": "suite", "recovery": {"state": "triage"}},
    "triage": {"to": ["build", "given up"], "recovery": "fail"},
    "ship":   {"to": ["shipped"], "recovery": {"restart": 2}},
    "shipped": {"end": true},
    "given up": {"end": true}
  }
}`

const flowSuite = `{"initial": "run", "states": {"run": {"to": ["run", "ran"]}, "ran": {"end": true}}}`

// flowTemplates writes the templates.
func flowTemplates(t *testing.T, st *tally.Store) *tavern.Workflows {
	t.Helper()
	w := tavern.WorkflowsOf(st)
	for id, data := range map[string]string{"release": flowRelease, "suite": flowSuite} {
		_, err := w.Create(t.Context(), id, []byte(data))
		must(t, err)
	}
	return w
}

// flowIs checks a flow's state.
func flowIs(t *testing.T, f *tavern.Flow, state string, step int64, outcome string) *tavern.FlowState {
	t.Helper()
	s, err := f.State(t.Context())
	must(t, projector.Tolerate(err))
	if s.State != state || s.Step != step || s.Outcome() != outcome || s.Over() != (outcome != "") {
		t.Errorf("flow %q is in %q, step %d, outcome %q; want %q, %d, %q", f.ID(), s.State, s.Step, s.Outcome(), state, step, outcome)
	}
	return s
}

// flowRecords counts the records of a store.
func flowRecords(t *testing.T, st *tally.Store) (n int) {
	t.Helper()
	for _, err := range st.Log.Read(t.Context(), events.Range{}) {
		must(t, err)
		n++
	}
	return n
}

// flowRefused checks that a call is refused with an error of a type, and writes nothing.
func flowRefused[E error](t *testing.T, st *tally.Store, what string, do func() error) (refusal E) {
	t.Helper()
	before := flowRecords(t, st)
	err := do()
	refusal, ok := errors.AsType[E](err)
	if !ok {
		t.Errorf("%s: %T %v, want a %T", what, err, err, refusal)
	}
	if n := flowRecords(t, st) - before; n != 0 {
		t.Errorf("%s: the refused call wrote %d records", what, n)
	}
	return refusal
}

// flowRefusedRaw is flowRefused for a store with unreadable records.
func flowRefusedRaw[E error](t *testing.T, what string, do func() error) {
	t.Helper()
	err := do()
	if refusal, ok := errors.AsType[E](err); !ok {
		t.Errorf("%s: %T %v, want a %T", what, err, err, refusal)
	}
}
