package tallydir_test

import (
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/evals"
)

// For any files, an import does not panic, the export restores the files, and a second import adds nothing.
func FuzzImportLines(f *testing.F) {
	small := smallTree()
	whole := small[conv+"conversation.jsonl"]
	for _, lines := range []string{"", "\n", whole, whole + "\r\n", whole[:len(whole)/2], whole[100:], "\ufeff" + whole, "null\n{}\n\n[1]", "{}\r\n{}", "{}\r{}\n", " {}\n{} ", "\ufeff", "\r\n"} {
		for _, traces := range []string{"", tracesOf(3), "[]", "[\n]", "[{}]\r\n", "[\n {\n  \"a\": 1\n }\n]", "\ufeff[]", "[\n\t1,\n\t2\n]"} {
			f.Add([]byte(lines), []byte(traces))
		}
	}
	f.Fuzz(func(t *testing.T, lines, traces []byte) {
		st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
		tree := map[string]string{conv + "conversation.jsonl": string(lines), conv + "stepTraces.json": string(traces), conv + "meta.json": string(traces), conv + "runs/tally/r.json": string(traces)}
		mustImport(t, st, writeTree(t, dir, tree))
		mustEqual(t, tree, exported(t, st))
		if again, err := layout.Import(t.Context(), st, dir, layouts.ImportOptions{}); err != nil || again.Events != 0 {
			t.Errorf("a second import: %+v, error %v", again, err)
		}
	})
}

// For any text of a conversation, the Go side reads only steps, and their written form reads and writes as the same
// again. The test is here because the tests of the Go side link a server, which takes a minute to build for a fuzzer.
func FuzzDecodeConversation(f *testing.F) {
	f.Add([]byte("{\"stepIndex\":0,\"input\":{},\"output\":[],\"timestamp\":1}\n\n{\"conversationId\":\"a\"}"))
	f.Add([]byte("\xef\xbb\xbf{}\r\n[]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := evals.Decode(text)
		if err != nil {
			return
		}
		if d.ID == "" {
			t.Fatal("the conversation has no id")
		}
		if len(d.Steps) == 0 {
			return // the original writes nothing then, and refuses to read an empty file
		}
		written, err := evals.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := evals.Decode(written)
		if err != nil || back.ID != d.ID || string(back.Metadata) != string(d.Metadata) || len(back.Steps) != len(d.Steps) {
			t.Fatalf("%+v in the written form %q is read as %+v, error %v", d, written, back, err)
		}
		for _, s := range d.Steps {
			if _, err := evals.ParseStep(s.Raw()); err != nil {
				t.Fatalf("%s is not a step: %v", s.Raw(), err)
			}
		}
		if again, err := evals.Encode(back); err != nil || string(again) != string(written) {
			t.Fatalf("the written form is %q, that of its reading %q, error %v", written, again, err)
		}
	})
}
