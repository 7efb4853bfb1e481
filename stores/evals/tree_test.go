package evals_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// Records of the handles are exported as the folder that the original would have written, and the handles read such a
// folder after an import.
func TestFolder(t *testing.T) {
	eachParity(t, []parity{
		{"T-07 create writes meta.json", testMetaFile},
		{"T-12 the files are those of the original", testFolderOfHandles},
		{"T-27 import and export give the same bytes", testFolderRoundTrip},
		{"T-28 files of the old layout", testOldLayout},
		{"T-30 ids of any bytes", testHostileIDs},
	})
}

// export returns all files of a store in the original's layout.
func export(t *testing.T, st *tally.Store) map[string]string {
	t.Helper()
	dir := t.TempDir()
	layouttest.MustExport(t, st, tallydir.Layout{}, dir, layouts.ExportOptions{})
	return layouttest.ReadTree(t, dir)
}

func bring(t *testing.T, st *tally.Store, files map[string]string) layouts.Report {
	t.Helper()
	dir := layouttest.WriteTree(t, filepath.Join(t.TempDir(), "project"), 0o644, files)
	r, err := (tallydir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testMetaFile(t *testing.T, st *tally.Store) {
	c, made, err := evals.Create(t.Context(), st, "c1")
	if err != nil {
		t.Fatal(err)
	}
	layouttest.MustEqual(t, map[string]string{c.Path() + "/meta.json": "{\n  \"id\": \"c1\",\n  \"createdAt\": \"" + string(made.At) + "\"\n}"}, export(t, st))
}

// recorded returns a conversation with everything that can be recorded.
func recorded(t *testing.T, st *tally.Store, id string) (*evals.Conversation, evals.Created) {
	t.Helper()
	c, made, err := evals.Create(t.Context(), st, id)
	if err != nil {
		t.Fatal(err)
	}
	need(c.Save(t.Context(), need(evals.FromStepTraces(simulated(), id, []byte(`{"k": 1.0}`)))))
	need(c.SaveTrajectoryMeta(t.Context(), trajectoryMeta()))
	need(c.SaveTrajectoryStepTraces(t.Context(), simulated()))
	need(need(c.CreateRun(t.Context(), evals.TallyRun, "run-1-a")).Save(t.Context(), []byte(`{"runId":"run-1-a","timestamp":"","perTargetResults":[],"aggregateSummaries":[],"evalSummaries":{}}`)))
	need(c.CreateRun(t.Context(), evals.TrajectoryRun, "pending"))
	return c, made
}

func testFolderOfHandles(t *testing.T, st *tally.Store) {
	_, made := recorded(t, st, "c1")
	const line = `{"stepIndex":0,"input":{"role":"user","content":"a"},"output":[{"role":"assistant","content":"<b>"}],"timestamp":"2026-01-23T12:35:42.341Z","metadata":{"originalTurnIndex":0,"stepId":"step-1","selection":{"method":"start"}},"conversationId":"c1","conversationMetadata":{"k":1.0}}`
	files := export(t, st)
	if lines := strings.Split(files["conversations/c1/conversation.jsonl"], "\n"); len(lines) != 3 || lines[0] != line || strings.Contains(lines[1], "conversationMetadata") || !strings.HasSuffix(lines[2], `,"conversationId":"c1"}`) {
		t.Errorf("the lines are\n%s", strings.Join(lines, "\n"))
	}
	want := map[string]string{
		"conversations/c1/conversation.jsonl":      files["conversations/c1/conversation.jsonl"],
		"conversations/c1/stepTraces.json":         files["conversations/c1/stepTraces.json"],
		"conversations/c1/meta.json":               "{\n  \"id\": \"c1\",\n  \"createdAt\": \"" + string(made.At) + "\"\n}",
		"conversations/c1/trajectory.meta.json":    "{\n  \"version\": 1,\n  \"trajectoryId\": \"c1\",\n  \"createdAt\": \"2026-01-23T12:35:42.341Z\",\n  \"goal\": \"a < b & c\",\n  \"persona\": {\n    \"description\": \"d\"\n  }\n}",
		"conversations/c1/runs/tally/run-1-a.json": "{\n  \"runId\": \"run-1-a\",\n  \"timestamp\": \"\",\n  \"perTargetResults\": [],\n  \"aggregateSummaries\": [],\n  \"evalSummaries\": {}\n}",
	}
	layouttest.MustEqual(t, want, files)
	if traces := files["conversations/c1/stepTraces.json"]; !strings.HasPrefix(traces, "[\n  {\n    \"turnIndex\": 0,\n    \"userMessage\": {") || !strings.HasSuffix(traces, "\n  }\n]") {
		t.Errorf("the traces are\n%s", traces)
	}
	// Another store that imports the export has the same files.
	other := need(st.In(st.Namespace() + "-other"))
	if r := bring(t, other, files); len(r.Problems) != 0 {
		t.Errorf("got the problems %v", r.Problems)
	}
	layouttest.MustEqual(t, files, export(t, other))
	d, back := mustContent(t, evals.Of(st, "c1")), mustContent(t, evals.Of(other, "c1"))
	if len(d.Steps) != len(back.Steps) || string(d.Metadata) != `{"k": 1.0}` || string(back.Metadata) != `{"k":1.0}` {
		t.Errorf("%+v, %+v", d, back)
	}
	if traces := need(evals.Of(other, "c1").LoadTrajectoryStepTraces(t.Context())); len(traces) != 3 || traces[1].TurnIndex != 3 {
		t.Errorf("the traces are %+v", traces)
	}
}

func testFolderRoundTrip(t *testing.T, st *tally.Store) {
	testkit.NotUnderRace(t)
	for _, root := range []string{"travel", "cashflow"} {
		dir := testkit.Data(t, "tally", root)
		own := need(st.In(st.Namespace() + "-" + root))
		if r, err := (tallydir.Layout{}).Import(t.Context(), own, dir, layouts.ImportOptions{}); err != nil || len(r.Problems) > 0 {
			t.Fatalf("got %v, error %v", r.Problems, err)
		}
		files := layouttest.ReadTree(t, dir)
		layouttest.MustEqual(t, files, export(t, own))
		for _, c := range need(evals.List(t.Context(), own)) {
			savedAsLoaded(t, own, c, files)
			goesOn(t, own, c)
		}
	}
}

// savedAsLoaded saves a loaded conversation, and checks that this appends no event.
func savedAsLoaded(t *testing.T, st *tally.Store, c *evals.Conversation, files map[string]string) {
	t.Helper()
	before := len(recordsOf(t, st, c.ID()))
	d := mustContent(t, c)
	changes := []evals.Change{need(c.Save(t.Context(), d)).Change}
	if _, ok := files[c.Path()+"/stepTraces.json"]; ok {
		traces := evals.ToStepTraces(d, evals.TraceOptions{PreserveTurnIndices: true})
		changes = append(changes, need(c.SaveTrajectoryStepTraces(t.Context(), traces)))
	}
	if _, ok := files[c.Path()+"/trajectory.meta.json"]; ok {
		changes = append(changes, need(c.SaveTrajectoryMeta(t.Context(), need(c.LoadTrajectoryMeta(t.Context())))))
	}
	for _, r := range need(c.ListRuns(t.Context())) {
		need(r.Load(t.Context()))
		if raw := need(r.Raw(t.Context())); string(raw) != strings.TrimSuffix(files[r.Path()], "\n") {
			t.Errorf("%s: the raw bytes differ from the file's", r.Path())
		}
	}
	if i := slices.IndexFunc(changes, func(change evals.Change) bool { return change != evals.NoChange }); i >= 0 {
		t.Errorf("%s: the save of loaded content changed %v", c.ID(), changes)
	}
	if n := len(recordsOf(t, st, c.ID())); n != before {
		t.Errorf("%s: got %d records, want %d as before", c.ID(), n, before)
	}
}

// goesOn appends to an imported conversation.
func goesOn(t *testing.T, st *tally.Store, c *evals.Conversation) {
	t.Helper()
	d := mustContent(t, c)
	need(c.Append(t.Context(), stepOf(99, "after the import")))
	if again := mustContent(t, c); len(again.Steps) != len(d.Steps)+1 {
		t.Errorf("got %d steps", len(again.Steps))
	}
	lines := strings.Split(export(t, st)[c.Path()+"/conversation.jsonl"], "\n")
	if last := lines[len(lines)-1]; !strings.HasSuffix(last, `,"conversationId":"`+d.ID+`"}`) {
		t.Errorf("the last line is %s", last)
	}
}

// An embedded server's export equals the folder.
func TestGeneratedFolders(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	st := storetest.Open(t, "local")
	for seed := range testkit.Times(50) {
		t.Run(fmt.Sprint("T-27 generated folder ", seed), func(t *testing.T) {
			dir := t.TempDir()
			if _, err := gentree.Write(dir, gentree.Options{Seed: uint64(seed), Sessions: 2, Turns: 4, TurnBytes: 100, Odd: seed%2 == 0}); err != nil {
				t.Fatal(err)
			}
			own := need(st.In(fmt.Sprint("folder-", seed)))
			need((tallydir.Layout{}).Import(t.Context(), own, dir, layouts.ImportOptions{}))
			layouttest.MustEqual(t, layouttest.ReadTree(t, dir), export(t, own))
			if again := need((tallydir.Layout{}).Import(t.Context(), own, dir, layouts.ImportOptions{})); again.Events != 0 {
				t.Errorf("a second import added %d events", again.Events)
			}
		})
	}
}

func testOldLayout(t *testing.T, st *tally.Store) {
	files := map[string]string{
		"conversations/c1/meta.json":          `{"id":"c1","createdAt":"2026-01-23T12:35:42.341Z"}`,
		"conversations/c1/conversation.jsonl": string(stepOf(0, "a").Raw()) + "\n",
		"conversations/c1/runs/run-1-a.json":  "{ \"old\": 1 }\n",
	}
	bring(t, st, files)
	layouttest.MustEqual(t, files, export(t, st))
	c := evals.Of(st, "c1")
	if runs := need(c.ListRuns(t.Context())); len(runs) != 0 {
		t.Errorf("the runs are %v", runs)
	}
	if _, ok, err := c.GetRun(t.Context(), "run-1-a"); ok || err != nil {
		t.Errorf("get the run: %v", err)
	}
}

func testHostileIDs(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixEscape)
	ids := []string{"../x", "a/../../b", "a:b", "/", "..", ".", "con", "with space ", "\xff\x00", strings.Repeat("l", 500)}
	for _, id := range ids {
		c, _ := recorded(t, st, id)
		if _, err := c.Run(evals.TrajectoryRun, id).Save(t.Context(), []byte(`{}`)); (err == nil) != utf8.ValidString(id) {
			t.Errorf("the id of a run %q: %v", id, err) // the id is a JSON string
		}
		if d := mustContent(t, c); len(d.Steps) != 3 || d.ID != id && id != "\xff\x00" {
			t.Errorf("%q: got %+v", id, d)
		}
	}
	files := export(t, st)
	for _, id := range ids {
		c := evals.Of(st, id)
		if files[c.Path()+"/conversation.jsonl"] == "" || utf8.ValidString(id) && files[c.Run(evals.TrajectoryRun, id).Path()] != "{}" {
			t.Errorf("%q: the export has no file %s", id, c.Path())
		}
	}
	if n := len(need(evals.List(t.Context(), st))); n != len(ids) || len(files) != 6*len(ids)-1 {
		t.Errorf("got %d conversations and %d files", n, len(files))
	}
	if _, _, err := evals.Create(t.Context(), st, ""); !isInvalid(err) {
		t.Errorf("an empty id: %v", err)
	}
}
