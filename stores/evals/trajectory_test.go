package evals_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals"
)

type rawMessage = json.RawMessage

var anyway = log.Any

func trajectoryMeta() *evals.TrajectoryMeta {
	return &evals.TrajectoryMeta{Version: 1, TrajectoryID: "c1", CreatedAt: "2026-01-23T12:35:42.341Z", Goal: "a < b & c", Persona: evals.Persona{Description: "d"}}
}

func TestTrajectory(t *testing.T) {
	eachParity(t, []parity{
		{"T-24 the definition of a simulation", testTrajectoryMeta},
		{"T-25 step traces", testStepTraces},
		{"T-31 what viewers read", testViewer},
		{"T-32 a part of a simulation survives a crash", testPartialTrajectory},
	})
	t.Run("T-26 conversions", testConversions)
}

func testTrajectoryMeta(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	if m, err := c.LoadTrajectoryMeta(t.Context()); m != nil || err != nil {
		t.Errorf("without metadata: %v, error %v", m, err)
	}
	raw := `{"version":1,"trajectoryId":"c1","createdAt":"2026-01-23T12:35:42.341Z","goal":"<g>","persona":{"description":"d","guardrails":["x"]},"maxTurns":25,"loopDetection":{"maxConsecutiveSameStep":5},"stepGraph":{"start":"s","steps":[{"id":"s","preconditions":[{"type":"custom"}]}]},"extra":1.0}`
	if change := need(c.SaveTrajectoryMetaRaw(t.Context(), []byte(raw))); change != evals.Extension {
		t.Errorf("got %v", change)
	}
	m := need(c.LoadTrajectoryMeta(t.Context()))
	at, ok := m.CreatedAt.Time()
	if !ok || at.UnixMilli() != 1769171742341 || m.Goal != "<g>" || *m.MaxTurns != 25 || len(m.StepGraph.Steps) != 1 || len(m.Unknown) != 1 {
		t.Errorf("%v, %+v", at, m)
	}
	if got := need(c.TrajectoryMetaRaw(t.Context())); string(got) != raw {
		t.Errorf("bytes %s", got)
	}
	if change := need(c.SaveTrajectoryMeta(t.Context(), m)); change != evals.NoChange { // the typed view lost nothing
		t.Errorf("a save of equal metadata: %v", change)
	}
	before := len(recordsOf(t, st, "c1"))
	for field, bad := range map[string]string{"version": strings.Replace(raw, `"version":1`, `"version":2`, 1), "createdAt": strings.Replace(raw, "2026-01", "2026-13", 1), "maxTurns": strings.Replace(raw, "25", `"25"`, 1), "goal": strings.Replace(raw, `"goal"`, `"gaol"`, 1)} {
		if _, err := c.SaveTrajectoryMetaRaw(t.Context(), []byte(bad)); !isInvalid(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got the error %v", field, err)
		}
	}
	if n := len(recordsOf(t, st, "c1")); n != before {
		t.Errorf("got %d records, want %d as before", n, before)
	}
	if change := need(c.SaveTrajectoryMeta(t.Context(), trajectoryMeta())); change != evals.Replacement {
		t.Errorf("got %v", change)
	}
}

// simulated returns the traces of a simulation.
func simulated() []evals.StepTrace {
	first, second := "step-1", "step-2"
	return []evals.StepTrace{
		{TurnIndex: 0, UserMessage: []byte(`{"role":"user","content":"a"}`), Timestamp: "2026-01-23T12:35:42.341Z", StepID: &first, AgentMessages: raws(`{"role":"assistant","content":"<b>"}`), Selection: []byte(`{"method":"start"}`)},
		{TurnIndex: 3, UserMessage: []byte(`{"role":"user","content":"c"}`), Timestamp: "2026-01-23T12:35:43.341Z", StepID: &second, AgentMessages: raws(), Selection: []byte(`{"method":"llm-ranked","candidates":[{"stepId":"step-2","score":0.9200000000000003,"reasons":["r"]}]}`)},
		{TurnIndex: 4, UserMessage: []byte(`{"role":"user","content":"d"}`), Timestamp: "2026-01-23T12:35:44.341Z", AgentMessages: raws(), Selection: []byte(`{"method":"none"}`), End: []byte(`{"isFinal":true,"reason":"max-turns","completed":false}`)},
	}
}

func raws(list ...string) []rawMessage {
	out := []rawMessage{}
	for _, s := range list {
		out = append(out, rawMessage(s))
	}
	return out
}

func testStepTraces(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	if traces, err := c.LoadTrajectoryStepTraces(t.Context()); traces != nil || err != nil {
		t.Errorf("without traces: %v, error %v", traces, err)
	}
	d := need(evals.FromStepTraces(simulated(), "c1", nil))
	need(c.Save(t.Context(), d))
	if traces := need(c.LoadTrajectoryStepTraces(t.Context())); traces != nil {
		t.Errorf("the traces of a conversation without a simulation are %v", traces)
	}
	need(c.SaveTrajectoryStepTraces(t.Context(), simulated()))
	if traces := need(c.LoadTrajectoryStepTraces(t.Context())); !reflect.DeepEqual(traces, simulated()) {
		t.Errorf("got %+v", traces)
	}
	if turns := need(c.Session().Load(t.Context(), "")).Threads.Turns("traces"); len(turns) != 0 {
		t.Error("traces that follow from the steps were stored")
	}
	if change := need(c.SaveTrajectoryStepTraces(t.Context(), simulated())); change != evals.NoChange {
		t.Errorf("a second save: %v", change)
	}
	others := simulated()[:2] // they cannot be computed from the steps
	need(c.SaveTrajectoryStepTraces(t.Context(), others))
	if traces := need(c.LoadTrajectoryStepTraces(t.Context())); !reflect.DeepEqual(traces, others) {
		t.Errorf("got %+v", traces)
	}
	need(c.SaveTrajectoryStepTraces(t.Context(), nil))
	if traces := need(c.LoadTrajectoryStepTraces(t.Context())); traces == nil || len(traces) != 0 {
		t.Errorf("after a save of no traces: %#v", traces)
	}
	bad := simulated()
	bad[1].Selection = []byte(`"start"`)
	if _, err := c.SaveTrajectoryStepTraces(t.Context(), bad); !isInvalid(err) || !strings.Contains(err.Error(), "[1].selection") {
		t.Errorf("save an invalid selection: %v", err)
	}
	typed := simulated()
	if s, err := typed[1].Chosen(); err != nil || s.Method != "llm-ranked" || s.Candidates[0].Score != 0.9200000000000003 {
		t.Errorf("got %+v, error %v", s, err)
	}
	if e, err := typed[2].Ended(); err != nil || e.Reason != "max-turns" || e.Completed {
		t.Errorf("got %+v, error %v", e, err)
	}
}

func testConversions(t *testing.T) {
	d := need(evals.FromStepTraces(simulated(), "c1", []byte(`{"source":"test"}`)))
	if d.ID != "c1" || string(d.Metadata) != `{"source":"test"}` || d.Steps[1].StepIndex() != 1 {
		t.Errorf("got %+v", d)
	}
	if want := `{"stepIndex":2,"input":{"role":"user","content":"d"},"output":[],"timestamp":"2026-01-23T12:35:44.341Z","metadata":{"originalTurnIndex":4,"stepId":null,"selection":{"method":"none"},"end":{"isFinal":true,"reason":"max-turns","completed":false}}}`; string(d.Steps[2].Raw()) != want {
		t.Errorf("got %s", d.Steps[2].Raw())
	}
	if back := evals.ToStepTraces(d, evals.TraceOptions{PreserveTurnIndices: true}); !reflect.DeepEqual(back, simulated()) {
		t.Errorf("got %+v", back)
	}
	if back := evals.ToStepTraces(d, evals.TraceOptions{}); back[1].TurnIndex != 1 {
		t.Errorf("the index is %d", back[1].TurnIndex)
	}
	bare := need(evals.NewStep(5, []byte(`{"role":"user"}`)))
	now := time.UnixMilli(1769171838912)
	got := evals.ToStepTraces(&evals.Data{ID: "x", Steps: []evals.Step{bare}}, evals.TraceOptions{Now: func() time.Time { return now }})
	if got[0].Timestamp != "2026-01-23T12:37:18.912Z" || got[0].StepID != nil || string(got[0].Selection) != `{"method":"none"}` || got[0].End != nil || got[0].TurnIndex != 0 {
		t.Errorf("got %+v", got[0])
	}
}

func testViewer(t *testing.T, st *tally.Store) {
	c, _, err := evals.Save(t.Context(), st, "c1", need(evals.FromStepTraces(simulated(), "c1", nil)))
	if err != nil {
		t.Fatal(err)
	}
	if tr := need(c.Trajectory(t.Context())); tr.Meta != nil || tr.Steps != nil {
		t.Errorf("without a simulation: %+v", tr)
	}
	need(c.SaveTrajectoryMeta(t.Context(), trajectoryMeta()))
	for _, id := range []string{"run-100-a", "run-300-a", "run-200-a", "odd"} {
		need(c.Run(evals.TallyRun, id).Save(t.Context(), []byte(artifact("1", "1"))))
	}
	if sums := need(evals.Summaries(t.Context(), st)); fmt.Sprint(sums) != "[{c1 4}]" {
		t.Errorf("got %v", sums)
	}
	var list []string
	for _, r := range evals.NewestFirst(need(c.ListRuns(t.Context()))) {
		at, ok := r.Timestamp()
		list = append(list, fmt.Sprint(r.ID(), r.Type(), at.UnixMilli() > 0 && ok))
	}
	if got := strings.Join(list, " "); got != "run-300-atallytrue run-200-atallytrue run-100-atallytrue oddtallyfalse" {
		t.Errorf("got %s", got)
	}
	if raw := need(c.Run(evals.TallyRun, "odd").Raw(t.Context())); string(raw) != artifact("1", "1") {
		t.Errorf("got %s", raw)
	}
	if tr := need(c.Trajectory(t.Context())); tr.Meta.Goal != "a < b & c" || len(tr.Steps) != 3 {
		t.Errorf("got %+v", tr)
	}
}

func testPartialTrajectory(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixCrash)
}

// crashDir is the environment variable that makes a copy of this test record and be killed.
const crashDir = "TALLY_TEST_CRASH_DIR"

// T-32 with a real crash: the recording process is killed between two steps.
func TestTrajectoryCrash(t *testing.T) {
	if dir := os.Getenv(crashDir); dir != "" {
		recordAndDie(t, dir)
	}
	dir := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command(os.Args[0], "-test.run=^TestTrajectoryCrash$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the process was not killed: %s", out)
	}
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if got := texts(mustContent(t, evals.Of(st, "c1"))); got != "turn 0,turn 1,turn 2" {
		t.Errorf("after the crash the steps are %s", got)
	}
}

func recordAndDie(t *testing.T, dir string) {
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		os.Exit(0) // the parent reports that it was not killed
	}
	c := evals.Of(st, "c1")
	for _, s := range stepsOf(3) {
		if _, err := c.Append(t.Context(), s); err != nil {
			os.Exit(0)
		}
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		_ = self.Kill()
	}
	select {}
}
