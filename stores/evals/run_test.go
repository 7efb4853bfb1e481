package evals_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/evals"
)

const trajectoryRun = `{"runId":"run-1-a","conversationId":"x","timestamp":"2026-01-23T12:35:42.341Z","goal":"g","persona":{"description":"d"},"completed":false,"reason":"max-turns","totalTurns":3,"custom":1.0}`

// artifact returns an Artifact with one eval.
func artifact(schemaVersion string, score string) string {
	return `{"schemaVersion":` + schemaVersion + `,"runId":"run-1-a","createdAt":"2026-01-23T12:37:18.912Z","defs":{"metrics":{"m":{"name":"m","scope":"single","valueType":"number"}},` +
		`"evals":{"z first":{"name":"e","kind":"singleTurn","outputShape":"seriesByStepIndex","metric":"m","verdict":{"kind":"number","type":"threshold","passAt":0.50,"odd":1}},"a second":{"name":"a","kind":"multiTurn","outputShape":"scalar","metric":"m"}},"scorers":{}},` +
		`"result":{"stepCount":2,"singleTurn":{"z first":{"byStepIndex":[null,{"evalRef":"e","measurement":{"metricRef":"m","score":` + score + `,"rawValue":null,"normalization":{"x":1}},"outcome":{"verdict":"pass","policy":{"kind":"none"}}}]}},"multiTurn":{},"scorers":{}},"metadata":{"b":1,"a":2},"unknown":[1.0]}`
}

// reportOf returns a Report.
func reportOf(score string) string {
	return `{"runId":"run-1-a","timestamp":"2026-01-10T00:00:00.000Z","perTargetResults":[{"targetId":"t","rawMetrics":[{"metricDef":{"name":"m"},"value":4.50,"executionTime":12.5}],"derivedMetrics":[{"definition":{"name":"d"},"value":0.9}],` +
		`"verdicts":{"z":{"verdict":"pass","score":` + score + `},"a":{"verdict":"fail","score":0,"rawValue":[1]}}}],"aggregateSummaries":[],"evalSummaries":{"z":{"evalName":"z","evalKind":"scorer","aggregations":{}}},"metadata":{"x":null}}`
}

func resultOf(kind string) string {
	if kind == "tally" {
		return artifact("1", "0.92")
	}
	return trajectoryRun
}

func TestRuns(t *testing.T) {
	eachParity(t, []parity{
		{"T-16 both types in a defined order", testRunOrder},
		{"T-17 get finds either type", testGetRun},
		{"T-18 ids that are made", testRunIDs},
		{"T-19 created runs are pending", testPendingRuns},
		{"T-20 saving again keeps history", testRunVersions},
		{"T-21 evaluations keep all and are validated", testEvaluations},
		{"T-22 simulations", testTrajectoryRuns},
		{"T-23 times of ids", testRunTimes},
		{"T-29 which revision was judged", testJudged},
	})
}

func testRunOrder(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixRunOrder)
}

func testGetRun(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	if r, ok, err := c.GetRun(t.Context(), "run-1-a"); r != nil || ok || err != nil {
		t.Errorf("get of a missing conversation: %v, error %v", r, err)
	}
	need(c.Run(evals.TrajectoryRun, "run-1-a").Save(t.Context(), []byte(trajectoryRun)))
	if r, ok, err := c.GetRun(t.Context(), "run-1-a"); !ok || err != nil || r.Type() != evals.TrajectoryRun {
		t.Errorf("got %v, error %v", r, err)
	}
	need(c.Run(evals.TallyRun, "run-1-a").Save(t.Context(), []byte(artifact("1", "1"))))
	if r, ok, err := c.GetRun(t.Context(), "run-1-a"); !ok || err != nil || r.Type() != evals.TallyRun {
		t.Errorf("get an id that runs of two types have: %v, error %v", r, err)
	}
	if runs := need(c.ListRuns(t.Context())); len(runs) != 2 {
		t.Errorf("got %d runs", len(runs))
	}
}

func testRunIDs(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	form := regexp.MustCompile(`^run-\d+-[a-z0-9]{7}$`)
	seen := make(map[string]bool)
	for i := range 20 {
		r := need(c.CreateRun(t.Context(), []evals.RunType{evals.TallyRun, evals.TrajectoryRun}[i%2], ""))
		if !form.MatchString(r.ID()) || seen[r.ID()] {
			t.Errorf("the id is %q", r.ID())
		}
		seen[r.ID()] = true
		if at, ok := r.Timestamp(); !ok || time.Since(at) > time.Minute || time.Since(at) < -time.Minute {
			t.Errorf("the time in the id %q is %v", r.ID(), at)
		}
	}
	if _, err := c.CreateRun(t.Context(), "panel", "x"); !isInvalid(err) {
		t.Errorf("create with another type: %v", err)
	}
	now := time.UnixMilli(1769171838912)
	for prefix, id := range map[string]string{"run": evals.NewRunID(now), "conv": evals.NewID(now), "traj": evals.NewTrajectoryID(now)} {
		if ok, _ := regexp.MatchString("^"+prefix+"-1769171838912-[a-z0-9]{7}$", id); !ok {
			t.Errorf("the id is %q", id)
		}
	}
}

func testPendingRuns(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	r := need(c.CreateRun(t.Context(), evals.TallyRun, "run-1-a"))
	if recs := recordsOf(t, st, "c1"); len(recs) != 1 || recs[0].Type != events.TypeRunCreated {
		t.Errorf("the records are %v", recs)
	}
	if runs := need(c.ListRuns(t.Context())); len(runs) != 0 {
		t.Errorf("a run was listed before its first save: %v", runs)
	}
	if _, ok, err := c.GetRun(t.Context(), "run-1-a"); ok || err != nil {
		t.Errorf("get a run before its first save: %v", err)
	}
	if _, err := r.Load(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load a run before its first save: %v", err)
	}
	if pending := need(c.PendingRuns(t.Context())); len(pending) != 1 || pending[0].ID() != "run-1-a" {
		t.Errorf("the pending runs are %v", pending)
	}
	need(c.CreateRun(t.Context(), evals.TallyRun, "run-1-a")) // it exists: nothing is written
	if recs := recordsOf(t, st, "c1"); len(recs) != 1 {
		t.Errorf("got %d records", len(recs))
	}
	need(r.Save(t.Context(), []byte(artifact("1", "1"))))
	if pending := need(c.PendingRuns(t.Context())); len(pending) != 0 {
		t.Errorf("the pending runs are %v", pending)
	}
}

func testRunVersions(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixRunHistory)
	r := need(evals.Of(st, "c1").CreateRun(t.Context(), evals.TallyRun, "mine"))
	if r.ID() != "mine" {
		t.Errorf("the id is %q", r.ID())
	}
	for i, score := range []string{"0.10", "0.2", "0.2"} {
		saved := need(r.Save(t.Context(), []byte(artifact("1", score))))
		if want := []evals.SavedRun{{Change: evals.Extension, Version: 1}, {Change: evals.Replacement, Version: 2}, {Change: evals.NoChange, Version: 2}}[i]; saved.Change != want.Change || saved.Version != want.Version {
			t.Errorf("save %d returned %+v", i, saved)
		}
	}
	if list := need(r.Versions(t.Context())); len(list) != 2 || list[0].Outcome != "completed" || list[0].FinishedAt != "2026-01-23T12:37:18.912Z" {
		t.Errorf("got %+v", list)
	}
	if old := need(r.LoadVersion(t.Context(), 1)); string(old.Raw) != artifact("1", "0.10") {
		t.Errorf("version 1 is %s", old.Raw)
	}
	if _, err := r.LoadVersion(t.Context(), 3); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load a missing version 3: %v", err)
	}
}

func testEvaluations(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	r := c.Run(evals.TallyRun, "run-1-a")
	for _, good := range []string{artifact("1", "0.9200000000000003"), reportOf("1"), artifact("1", "0"), strings.ReplaceAll(artifact("1", "1"), `,"`, ", \n\t\"")} {
		need(r.Save(t.Context(), []byte(good)))
		if got := need(r.Load(t.Context())); string(got.Raw) != good || got.IsReport() != strings.Contains(good, "perTarget") {
			t.Errorf("loaded %s", got.Raw)
		}
	}
	before := len(recordsOf(t, st, "c1"))
	last := need(r.Raw(t.Context()))
	for path, bad := range map[string]string{
		"schemaVersion": artifact("2", "1"),
		`result.singleTurn["z first"].byStepIndex[1].measurement.score`: artifact("1", "1.01"),
		`perTargetResults[0].verdicts["z"].score`:                       reportOf("-0.1"),
		`result.stepCount`: strings.Replace(artifact("1", "1"), `"stepCount":2`, `"stepCount":"2"`, 1),
		`defs`:             strings.Replace(artifact("1", "1"), `"defs"`, `"definitions"`, 1),
		`result.singleTurn["z first"].byStepIndex[1].outcome.verdict`: strings.Replace(artifact("1", "1"), `"verdict":"pass"`, `"verdict":"maybe"`, 1),
		`json`: `[1]`,
	} {
		_, err := r.Save(t.Context(), []byte(bad))
		if e, ok := errors.AsType[*events.InvalidError](err); !ok || e.Field != path {
			t.Errorf("got the error %[2]v, want one at %[1]s", path, err)
		}
	}
	if n := len(recordsOf(t, st, "c1")); n != before || string(need(r.Raw(t.Context()))) != string(last) {
		t.Errorf("got %d records, want %d as before", n, before)
	}
	// An invalid result from outside of the API is an error of Load, and can still be read as Raw.
	p := &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "odd"}, Outcome: "completed", Result: []byte(artifact("3", "1"))}
	mustRecord(t, st, "c1", p)
	odd := c.Run(evals.TallyRun, "odd")
	if _, err := odd.Load(t.Context()); !isInvalid(err) {
		t.Errorf("load version 3: %v", err)
	}
	if raw, err := odd.Raw(t.Context()); err != nil || string(raw) != artifact("3", "1") {
		t.Errorf("got %s, error %v", raw, err)
	}
	testTypedEvaluations(t, r)
}

// mustRecord appends an event without the handles.
func mustRecord(t testing.TB, st *tally.Store, id string, p events.Payload) {
	t.Helper()
	sub := events.Session(st.Namespace(), id)
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), sub, anyway, e); err != nil {
		t.Fatal(err)
	}
}

// Typed views keep the order and unknown members.
func testTypedEvaluations(t *testing.T, r *evals.Run) {
	a, err := evals.ParseArtifact([]byte(artifact("1", "0.25")))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range a.Defs.Evals.All() {
		names = append(names, name)
	}
	series, _ := a.Result.SingleTurn.Get("z first")
	if !slices.Equal(names, []string{"z first", "a second"}) || series.ByStepIndex[0] != nil || *series.ByStepIndex[1].Measurement.Score != 0.25 || string(series.ByStepIndex[1].Measurement.RawValue) != "null" {
		t.Errorf("%q, %+v", names, series)
	}
	need(r.SaveArtifact(t.Context(), a))
	again, err := need(r.Load(t.Context())).Artifact()
	if err != nil || fmt.Sprint(again.Unknown) != fmt.Sprint(a.Unknown) || len(again.Unknown) != 1 {
		t.Errorf("got %+v, error %v", again, err)
	}
	old, err := evals.ParseReport([]byte(reportOf("0.5")))
	if err != nil {
		t.Fatal(err)
	}
	need(r.SaveReport(t.Context(), old))
	if back := need(r.Load(t.Context())); string(back.Raw) != reportOf("0.5") && !back.IsReport() {
		t.Errorf("got %s", back.Raw)
	}
}

func testTrajectoryRuns(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixRunDate)
	r := evals.Of(st, "c1").Run(evals.TrajectoryRun, "run-1-a")
	need(r.Save(t.Context(), []byte(trajectoryRun)))
	result := need(r.Load(t.Context()))
	m, err := result.Trajectory()
	if err != nil || string(result.Raw) != trajectoryRun || m.Reason != "max-turns" || m.TotalTurns != 3 || len(m.Unknown) != 1 {
		t.Errorf("%s, %+v, %v", result.Raw, m, err)
	}
	if v := need(r.Versions(t.Context())); v[0].Outcome != "stopped:max-turns" {
		t.Errorf("got %+v", v)
	}
	need(r.SaveTrajectory(t.Context(), m))
	m.Timestamp = "yesterday"
	if _, err := r.SaveTrajectory(t.Context(), m); !isInvalid(err) {
		t.Errorf("save an invalid time: %v", err)
	}
	free := evals.Of(st, "c1").Run(evals.TrajectoryRun, "free") // the original checks nothing here
	need(free.Save(t.Context(), []byte(`{"anything":[]}`)))
	if _, err := need(free.Load(t.Context())).Trajectory(); !isInvalid(err) {
		t.Errorf("the typed view of another value: %v", err)
	}
}

func testRunTimes(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	at := time.UnixMilli(1769171838912)
	for id, want := range map[string]bool{"run-1769171838912-5790h4t": true, "x-1769171838912": true, "conv-1769171838912-a-b": true,
		"run1769171838912": false, "run-abc-x": false, "run--x": false, "run-1e3-x": false, "run-99999999999999999999-x": false, "": false} {
		if got, ok := c.Run(evals.TallyRun, id).Timestamp(); ok != want || ok && !got.Equal(at) {
			t.Errorf("run %q: %v, %v", id, got, ok)
		}
	}
	for id, want := range map[string]bool{"run-1769171838912-a": true, "conv-1769171838912-a": true, "traj-1769171838912": true, "x-1769171838912-a": false, "run-12x-a": false, "trajectory-1769171838912": false} {
		if _, ok := evals.TimestampOfID(id); ok != want {
			t.Errorf("Time of the id %q: %v", id, ok)
		}
	}
}

func testJudged(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixJudged)
	c := evals.Of(st, "c1")
	mustStore(t, c, saidSteps("a", "b")...)
	d := mustContent(t, c)
	mustStore(t, c, saidSteps("other")...) // while it is judged
	r := c.Run(evals.TallyRun, "run-1-a")
	need(r.Judging(d.Revision).Save(t.Context(), []byte(artifact("1", "1"))))
	v := need(r.Versions(t.Context()))
	if j := v[0].Judged; j == nil || j.Offset != d.Revision || j.Threads["main"].Length != 2 {
		t.Errorf("the judged steps are %+v", j)
	}
	if got := need(r.Stale(t.Context())); got != evals.Stale {
		t.Errorf("got %v", got)
	}
	// A rewind to the judged steps makes the result fresh: the content counts.
	back := need(c.Session().PlanRewind(t.Context(), d.Revision.String(), ""))
	need(c.Session().Move(t.Context(), back))
	if got := need(r.Stale(t.Context())); got != evals.Fresh {
		t.Errorf("after the rewind: %v", got)
	}
	need(c.Append(t.Context(), stepOf(9, "more")))
	if got := need(r.Stale(t.Context())); got != evals.Stale {
		t.Errorf("after another step: %v", got)
	}
	if _, err := r.Judging(1<<40).Save(t.Context(), []byte(artifact("1", "1"))); !isInvalid(err) {
		t.Errorf("judge a missing revision: %v", err)
	}
	// An imported result does not record its steps.
	mustRecord(t, st, "c1", &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "imported"}, Outcome: "completed", Result: []byte(artifact("1", "1"))})
	if got := need(c.Run(evals.TallyRun, "imported").Stale(t.Context())); got != evals.Stale { // its own count is 2 steps, the conversation has 3
		t.Errorf("the imported result is %v", got)
	}
}

// Every recorded evaluation passes the schema and is returned unchanged.
func TestRecordedEvaluations(t *testing.T) {
	list, err := filepath.Glob(filepath.Join(testkit.Data(t, "tally"), "*", "conversations", "*", "runs", "tally", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("the recorded data have no results of evaluations")
	}
	for _, name := range list {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := evals.ParseArtifact(raw); err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}
