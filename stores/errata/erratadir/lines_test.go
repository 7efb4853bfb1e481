package erratadir_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/errata"
)

// The prompts are those of all sessions: newest first in memory, oldest first in the file. Imported prompts follow
// the existing ones.
func TestPromptsInMemoryAndFile(t *testing.T) {
	t.Run("E-08 newest first in memory, oldest first on export, over all sessions", func(t *testing.T) {
		ctx := t.Context()
		st := openAPI(t)
		first, err := errata.New(ctx, st, errata.Options{SessionID: "ses_1"})
		must(t, err)
		second, err := errata.New(ctx, st, errata.Options{SessionID: "ses_2"})
		must(t, err)
		for _, c := range []struct {
			in     *errata.Store
			prompt string
			added  bool
		}{{first, "one", true}, {second, "one", false}, {second, "two <&> \u2028", true}, {first, "three\n", true}, {second, "one", true}} {
			if added, err := c.in.RecordPrompt(ctx, c.prompt); err != nil || added != c.added {
				t.Errorf("record %q: added %v, error %v", c.prompt, added, err)
			}
		}
		want := []string{"one", "three\n", "two <&> \u2028", "one"}
		for _, e := range []*errata.Store{first, second} {
			if list, err := e.PromptHistory(ctx); err != nil || !slices.Equal(list, want) {
				t.Errorf("the prompts are %q, error %v", list, err)
			}
		}
		const file = "\"one\"\n\"two \\u003c\\u0026\\u003e \\u2028\"\n\"three\\n\"\n\"one\"\n"
		got := exported(t, st)
		if got["prompt_history.jsonl"] != file {
			t.Errorf("exported\n%q, want\n%q", got["prompt_history.jsonl"], file)
		}
		for name := range got {
			if name != "prompt_history.jsonl" {
				t.Errorf("prompts are global, but the export has %s", name)
			}
		}
		back := openAPI(t)
		mustBeClean(t, back, folder(t, got))
		if list, err := errata.PromptsOf(back).List(ctx); err != nil || !slices.Equal(list, want) {
			t.Errorf("the imported prompts are %q, error %v", list, err)
		}
	})
}

// If the file of recipes is missing or cannot be parsed, the store keeps its recipes, and the import goes on. The
// file is exported as it is.
func TestRecipesFileIsCorrupt(t *testing.T) {
	for name, content := range map[string]string{"missing": "-", "empty": "", "torn": `{"rcp_1": "# N`, "no object": `["x"]`, "null": "null", "no recipe": `{"rcp_9":"no recipe"}`, "not UTF-8": "{\"rcp_1\":\"\xff\"}", "odd values": `{"rcp_1":7,"cfg_v1_0":[1]}`} {
		t.Run("E-31 survives a corrupt or missing file/"+name, func(t *testing.T) {
			ctx := t.Context()
			st := openAPI(t)
			const text = "# Kept\nversion: 1\n"
			hash, err := errata.RecipesOf(st).Put(ctx, []byte(text))
			must(t, err)
			files := layouttest.Change(two("ses_1").files(), "recipes.json", content)
			r := mustImport(t, st, folder(t, files))
			if r.Added != 1 {
				t.Errorf("the session was not imported: %+v", r)
			}
			if have, err := errata.RecipesOf(st).Get(ctx, hash); err != nil || string(have) != text {
				t.Errorf("the stored recipe is %q, error %v", have, err)
			}
			if hashes, err := errata.RecipesOf(st).HashesForName(ctx, "Kept"); err != nil || !slices.Equal(hashes, []string{hash}) {
				t.Errorf("got %q, error %v", hashes, err)
			}
			other, err := errata.RecipesOf(st).Put(ctx, []byte("# Another\nversion: 1\n"))
			must(t, err)
			if list, err := errata.RecipesOf(st).List(ctx); err != nil || list[other] == nil || list[hash] == nil {
				t.Errorf("got %d recipes, error %v", len(list), err)
			}
			if content != "-" {
				if got := exported(t, st); got["recipes.json"] != content {
					t.Errorf("the exported file is %q", got["recipes.json"])
				}
			}
		})
	}
}

// The checkpoint's file has the panel's order, not that of the answers, and the original's spelling.
func TestExportedCheckpoint(t *testing.T) {
	t.Run("E-26 the order of the panel in checkpoint.json", func(t *testing.T) {
		ctx := t.Context()
		st := openAPI(t)
		s := errata.Of(st, "ses_1")
		saver := s.SaveCheckpoint("", "three <&>", []string{"z", "m", "a", "silent"}, true)
		must(t, saver.Update(ctx, errata.Response{ModelID: "a", Text: "half", LatencyMS: 7}))
		must(t, saver.Update(ctx, errata.Response{ModelID: "m", Text: "part"}))
		must(t, saver.Finish(ctx, errata.Response{ModelID: "m", Text: "whole", CostUSD: 1e-7, InputTokens: 1, OutputTokens: 2, ReasoningTokens: 3, StopReason: errata.StopComplete, Steps: 4,
			ToolCalls: map[string]int{"read": 2, "bash": 1}, ProposedWrites: []errata.FileWrite{{Path: "p", Content: "c"}, {Path: "q", Delete: true}}}))
		must(t, saver.Finish(ctx, errata.Response{ModelID: "z", Error: "no <key>", Interrupted: true}))
		cp, err := s.LoadCheckpoint(ctx)
		must(t, err)
		want := `{"prompt":"three \u003c\u0026\u003e","timestamp":"` + cp.Timestamp.Format(time.RFC3339Nano) + `","adapter_ids":["z","m","a","silent"],"responses":[` +
			`{"model_id":"z","latency_ms":0,"input_tokens":0,"output_tokens":0,"cost_usd":0,"error":"no \u003ckey\u003e","interrupted":true,"completed":false},` +
			`{"model_id":"m","text":"whole","latency_ms":0,"input_tokens":1,"output_tokens":2,"reasoning_tokens":3,"cost_usd":1e-7,"proposed_writes":[{"path":"p","content":"c"},{"path":"q","content":"","delete":true}],` +
			`"tool_calls":{"bash":1,"read":2},"interrupted":false,"completed":true},` +
			`{"model_id":"a","text":"half","latency_ms":7,"input_tokens":0,"output_tokens":0,"cost_usd":0,"interrupted":false,"completed":false}],"verbose":true}`
		if got := exported(t, st)[one+"checkpoint.json"]; got != want {
			t.Errorf("checkpoint.json is\n%s, want\n%s", got, want)
		}
	})
}
