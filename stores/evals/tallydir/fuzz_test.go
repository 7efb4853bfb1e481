package tallydir_test

import (
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/formats"
)

// Whatever stands in the files, an import never panics, the files come out as they
// were, and a second import finds nothing to do.
func FuzzImportLines(f *testing.F) {
	small := smallTree()
	whole := small[conv+"conversation.jsonl"]
	for _, lines := range []string{"", "\n", whole, whole + "\r\n", whole[:len(whole)/2], whole[100:], "\ufeff" + whole, "null\n{}\n\n[1]", "{}\r\n{}", "{}\r{}\n", " {}\n{} ", "\ufeff", "\r\n"} {
		for _, traces := range []string{"", traces(3), "[]", "[\n]", "[{}]\r\n", "[\n {\n  \"a\": 1\n }\n]", "\ufeff[]", "[\n\t1,\n\t2\n]"} {
			f.Add([]byte(lines), []byte(traces))
		}
	}
	f.Fuzz(func(t *testing.T, lines, traces []byte) {
		st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
		tree := map[string]string{conv + "conversation.jsonl": string(lines), conv + "stepTraces.json": string(traces), conv + "meta.json": string(traces), conv + "runs/tally/r.json": string(traces)}
		mustImport(t, st, writeTree(t, dir, tree))
		mustEqual(t, tree, exported(t, st))
		if again, err := layout.Import(t.Context(), st, dir, formats.ImportOptions{}); err != nil || again.Events != 0 {
			t.Errorf("a second import: %+v, %v", again, err)
		}
	})
}
