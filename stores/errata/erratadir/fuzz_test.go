package erratadir_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// For any files, an import does not panic, the export restores the files, a second import adds nothing, and a
// redacted export is possible.
func FuzzImport(f *testing.F) {
	whole := two("ses_1").files()
	for _, meta := range []string{"", "{}", whole[oneMeta], whole[oneMeta][:50], `{"runs":[1,null,{},{"type":"rewind"},{"type":"rewind"},{"timestamp":1}]}`, `{"created_at":"0001-01-01T00:00:00Z","runs":[{},{}]}`, "\ufeff{}\r\n"} {
		for _, cont := range []string{"", "{}", whole[oneCont], `{"runs":[1,null,{"prompt":1,"models":[1]}],"histories":{"a":null,"b":[1]}}`, `{"histories":{"a":[],"a":[]}}`, `{"histories":{"":[]}}`} {
			f.Add([]byte(meta), []byte(cont))
		}
	}
	f.Fuzz(func(t *testing.T, meta, cont []byte) {
		tree := map[string]string{oneMeta: string(meta), oneCont: string(cont), one + "checkpoint.json": string(meta), one + "recipe.md": string(cont)}
		mustRoundTrip(t, tree)
	})
}

// FuzzBeside tests the same for files beside the sessions.
func FuzzBeside(f *testing.F) {
	for _, data := range []string{"", "\"a\"\n\"b\"", "\ufeff\"a\"\r\n\"b\"\r\n", "{}\n1\n\"x\"", `{"m":[{"Role":"user","Content":"x"}]}`, `{"rcp_1":"# R\n","cfg_v1_2":{}}`, "\"a\"\n\n\n", "\"\xff\"\n"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mustRoundTrip(t, map[string]string{"prompt_history.jsonl": string(data), "history.json": string(data), "recipes.json": string(data), "checkpoint.json": string(data)})
	})
}

func mustRoundTrip(t *testing.T, tree map[string]string) {
	t.Helper()
	st, dir := openStore(t), folder(t, tree)
	for _, p := range mustImport(t, st, dir).Problems {
		if strings.Contains(p.Reason, "does not come out") {
			t.Errorf("got %v", p)
		}
	}
	mustEqual(t, tree, exported(t, st))
	if again := mustImport(t, st, dir); again.Events != 0 {
		t.Errorf("the report of a second import is %+v", again)
	}
	mustExport(t, st, erratadir.Layout{Redact: true}, t.TempDir(), layouts.ExportOptions{})
}
