package erratadir_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// E-36: a redacted export has no text of a user or a model, in any member.
func TestRedacted(t *testing.T) { t.Run("E-36", testRedacted) }

func testRedacted(t *testing.T) {
	secrets := []string{"PROMPT-1", "PROMPT-2", "ANSWER-1", "ANSWER-2", "NOTE-1", "FILE-1", "WRITE-1", "CONTENT-1", "EVENT-1", "CHECKPOINT-1", "RECIPE-1", "STRAY-1", "HISTORY-1", "LATER-1", "LATER-2", "ODD-1", "ODD-2"}
	s := newSession("ses_1", "m").ask("PROMPT-1", "ANSWER-1").last(func(s *summary) { s.Note, s.AppliedFiles, s.Selected = "NOTE-1", []string{"FILE-1"}, "m" })
	s.content.Runs[0].Models[0].ProposedWrites = []write{{Path: "WRITE-1", Content: "CONTENT-1"}}
	s.content.Runs[0].Models[0].Events = []event{{"bash", "EVENT-1"}}
	s.ask("PROMPT-2", "ANSWER-2").rewind()
	files := s.files()
	files[oneMeta] = strings.Replace(files[oneMeta], `"prompt_count"`, `"later":"LATER-1","prompt_count"`, 1)
	files[oneCont] = strings.Replace(files[oneCont], `"prompt_hash"`, `"later":{"x":"LATER-2"},"prompt_hash"`, 1)
	files = layouttest.Change(files, one+"checkpoint.json", marshal(checkpoint{Prompt: "CHECKPOINT-1"}), one+"recipe.md", "# RECIPE-1\n", one+"notes", "STRAY-1", "recipes.json", `{"a":"RECIPE-1"}`,
		"prompt_history.jsonl", "\"PROMPT-1\"\n", "history.json", `{"m":[{"Role":"user","Content":"HISTORY-1"}]}`, "checkpoint.json", marshal(checkpoint{Prompt: "CHECKPOINT-1"}),
		"sessions/ses_2/session_metadata.json", `{"id":"ses_2","runs":["ODD-1",{"models":{"a":"ODD-2"}}]}`, "sessions/ses_2/session_content.json", `{"runs":[{"models":{"text":"ODD-1"}},{"models":["ODD-2",{"events":{"a":"ODD-1"}}]}]}`)
	st := openStore(t)
	mustImport(t, st, folder(t, files))
	out := t.TempDir()
	mustExport(t, st, erratadir.Layout{Redact: true}, out, layouts.ExportOptions{})
	shared := readTree(t, out)
	for name, data := range shared {
		for _, secret := range secrets {
			if strings.Contains(data, secret) || strings.Contains(name, secret) {
				t.Errorf("%s contains %s: %s", name, secret, data)
			}
		}
	}
	if len(shared) != 4 {
		t.Errorf("got %d files", len(shared))
	}
	for _, kept := range []string{`"id":"ses_1"`, `"selected":"m"`, `"prompt_hash":"ph_`, `"prompt_preview":""`, `"costs_usd":{"m":0.000125}`, `"type":"rewind"`, `"prompt_count":2`} {
		if !strings.Contains(shared[oneMeta], kept) {
			t.Errorf("%s is missing: %s", kept, shared[oneMeta])
		}
	}
	if !strings.Contains(shared[oneCont], `{"model_id":"m","text":"","events":[],"stop_reason":"complete","steps":1}`) {
		t.Errorf("the content is %s", shared[oneCont])
	}
	back := openStore(t)
	mustBeClean(t, back, out) // the export can be imported
	mustEqual(t, shared, exported(t, back))
}
