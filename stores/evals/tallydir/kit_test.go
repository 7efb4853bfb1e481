package tallydir_test

import (
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	goleak.VerifyTestMain(m)
}

type store = layouttest.Store

var _ layouts.Target = (*tally.Store)(nil)

func openStore(t testing.TB) store { return layouttest.OpenStore(t) }

func mustImport(t testing.TB, st store, dir string) layouts.Report {
	t.Helper()
	r, err := (tallydir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean imports a folder without problems.
func mustBeClean(t testing.TB, st store, dir string) layouts.Report {
	t.Helper()
	r := mustImport(t, st, dir)
	layouttest.MustBeClean(t, r)
	return r
}

func mustExport(t testing.TB, st store, dir string, o layouts.ExportOptions) layouts.Report {
	t.Helper()
	return layouttest.MustExport(t, st, tallydir.Layout{}, dir, o)
}

// exported returns all files of an export.
func exported(t testing.TB, st store) map[string]string {
	t.Helper()
	files, r := layouttest.Exported(t, st, tallydir.Layout{})
	layouttest.MustBeClean(t, r)
	return files
}

var (
	readTree  = layouttest.ReadTree
	mustEqual = layouttest.MustEqual
)

func writeTree(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	return layouttest.WriteTree(t, dir, 0o644, files)
}

const conv = "conversations/c1/"

// smallTree returns one conversation with every kind of file, in its writer's form.
func smallTree() map[string]string {
	return map[string]string{
		conv + "meta.json":                "{\n  \"id\": \"c1\",\n  \"createdAt\": \"2026-01-23T12:27:07.775Z\"\n}",
		conv + "conversation.jsonl":       step(0) + "\n" + step(1) + "\n" + step(2),
		conv + "trajectory.meta.json":     "{\n  \"version\": 1,\n  \"goal\": \"a < b & c\"\n}",
		conv + "stepTraces.json":          tracesOf(3),
		conv + "runs/tally/run-1-a.json":  "{\n  \"runId\": \"run-1-a\",\n  \"createdAt\": \"2026-01-23T12:37:18.912Z\"\n}",
		conv + "runs/trajectory/r-2.json": "{\n  \"runId\": \"r-2\",\n  \"completed\": false,\n  \"reason\": \"max-turns\"\n}",
	}
}

func step(n int) string {
	i := strconv.Itoa(n)
	return `{"stepIndex":` + i + `,"input":{"role":"user","content":"q` + i + `"},"output":[],"timestamp":"2026-01-23T12:35:4` + i + `.000Z",` +
		`"metadata":{"originalTurnIndex":` + i + `,"stepId":null,"selection":{"method":"none"}},"conversationId":"c1"}`
}

func tracesOf(n int) string {
	var list []string
	for i := range n {
		i := strconv.Itoa(i)
		list = append(list, "  {\n    \"turnIndex\": "+i+",\n    \"userMessage\": {\n      \"role\": \"user\",\n      \"content\": \"q"+i+"\"\n    },\n"+
			"    \"agentMessages\": [],\n    \"timestamp\": \"2026-01-23T12:35:4"+i+".000Z\",\n    \"stepId\": null,\n    \"selection\": {\n      \"method\": \"none\"\n    }\n  }")
	}
	return "[\n" + strings.Join(list, ",\n") + "\n]"
}

var (
	layout    = tallydir.Layout{}
	anyOffset = log.Any
)
