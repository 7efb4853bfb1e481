package erratadir_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/erratadir"
	"github.com/tallylog/tally/stores/errata/recipe"
)

var _ layouts.Target = (*tally.Store)(nil)

func openAPI(t *testing.T) *tally.Store {
	t.Helper()
	st, err := tally.Open(t.Context(), logtest.Open(t), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The panel's own views show an imported session.
func TestImportedViews(t *testing.T) {
	ctx := t.Context()
	st := openAPI(t)
	original := two("ses_1")
	files := layouttest.Change(original.files(), "prompt_history.jsonl", "\"a\"\n\"b\"\n", "recipes.json", "{\n  \"rcp_1\": \"# Named\\nversion: 1\\n\"\n}", one+"recipe.md", "# Mine\nversion: 1\n",
		one+"checkpoint.json", marshal(checkpoint{Prompt: "p", Timestamp: at(40), AdapterIDs: []string{"claude", "gpt"}, Responses: []response{{ModelID: "gpt", Completed: true, Text: "done"}}}),
		"history.json", `{"m":[{"Role":"user","Content":"old"}]}`)
	mustBeClean(t, st, folder(t, files))
	s := errata.Of(st, "ses_1")
	meta, err := s.Metadata(ctx)
	must(t, err)
	if meta.ID != "ses_1" || meta.PromptCount != 4 || len(meta.Runs) != 5 || meta.FirstPrompt != original.meta.FirstPrompt || !meta.CreatedAt.Equal(original.meta.CreatedAt) || meta.Runs[0].Note != "nice" {
		t.Errorf("the metadata are %+v", meta)
	}
	content, err := s.Content(ctx)
	must(t, err)
	if marshal(content) != files[oneCont] {
		t.Errorf("content\n%s, want\n%s", marshal(content), files[oneCont])
	}
	if prompts, err := errata.PromptsOf(st).List(ctx); err != nil || len(prompts) != 2 || prompts[0] != "b" {
		t.Errorf("the prompts are %q, error %v", prompts, err)
	}
	if total, err := s.TotalCost(ctx); err != nil || total != "0.0015" {
		t.Errorf("the cost is %s, error %v", total, err)
	}
	cp, err := s.LoadCheckpoint(ctx)
	must(t, err)
	if cp == nil || cp.Prompt != "p" || len(cp.Remaining()) != 1 || cp.Remaining()[0] != "claude" {
		t.Errorf("the checkpoint is %+v", cp)
	}
	if r, err := s.SessionRecipe(ctx); err != nil || r == nil || r.Name != "Mine" {
		t.Errorf("the recipe is %+v, error %v", r, err)
	}
	if name, err := errata.RecipesOf(st).Name(ctx, "rcp_1"); err != nil || name != "Named" {
		t.Errorf("the name is %q, error %v", name, err)
	}
	if old, err := errata.Of(st, "history").Histories(ctx); err != nil || old["m"][0] != (errata.Turn{Role: "user", Content: "old"}) {
		t.Errorf("the history is %+v, error %v", old, err)
	}
	// A run before the rewind does not count, a run after it does.
	stats, err := errata.StatsOf(ctx, st, errata.Filter{})
	must(t, err)
	if got := stats["claude"].Participations; got != 3 {
		t.Errorf("E-33: got %d participations", got)
	}
}

// rewound runs a prompt and rewinds it.
func rewound(t *testing.T, s *errata.Session) {
	t.Helper()
	responses := []errata.Response{{ModelID: "m", Text: "c"}, {ModelID: "n", Text: "d"}}
	before, err := s.AppendHistories(t.Context(), []string{"m", "n"}, responses, "wrong")
	must(t, err)
	_, err = s.PushRewindEntry(t.Context(), errata.RewindEntry{At: before.At, Prompt: "wrong", HistoryLengths: before.Lengths, FeedIndex: -1})
	must(t, err)
	_, err = s.PersistRunState(t.Context(), errata.Run{Prompt: "wrong", Responses: responses})
	must(t, err)
	_, err = s.Rewind(t.Context(), errata.WorkTree{})
	must(t, err)
}

// Records of the panel's own calls are exported in the original's form, and the import of the export shows the same.
func TestExportedViews(t *testing.T) {
	ctx := t.Context()
	st := openAPI(t)
	s := errata.Of(st, "ses_1")
	zone := time.FixedZone("", -8*3600)
	must(t, s.SaveInitialMeta(ctx, errata.Metadata{ID: "ses_1", CreatedAt: time.Date(2026, 5, 6, 7, 8, 9, 10, zone), Models: []string{"m", "n"}}))
	hash, err := errata.RecipesOf(st).Put(ctx, []byte("# R\nversion: 1\n"))
	must(t, err)
	for i, prompt := range []string{"one <&>", "two"} {
		if _, err := errata.PromptsOf(st).Record(ctx, prompt); err != nil {
			t.Fatal(err)
		}
		responses := []errata.Response{{ModelID: "m", Text: "a", CostUSD: 0.1, StopReason: errata.StopComplete}, {ModelID: "n", Error: "x"}}
		if _, err := s.AppendHistories(ctx, []string{"m", "n"}, responses, prompt); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PersistRunState(ctx, errata.Run{Prompt: prompt, Responses: responses, ConfigHash: hash, At: time.Date(2026, 5, 6, 8, i, 0, 0, zone)}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "m", AppliedFiles: []string{"f"}}))
	must(t, s.UpdateLastRunNote(ctx, "well"))
	rewound(t, s)
	saver := s.SaveCheckpoint("", "three", []string{"n", "m"}, true)
	must(t, saver.Finish(ctx, errata.Response{ModelID: "m", Text: "x", StopReason: errata.StopComplete}))
	must(t, saver.Update(ctx, errata.Response{ModelID: "n", Text: "half"}))

	meta, err := s.Metadata(ctx)
	must(t, err)
	content, err := s.Content(ctx)
	must(t, err)
	cp, err := s.LoadCheckpoint(ctx)
	must(t, err)
	got := exported(t, st)
	unfinished := marshal(checkpoint{Prompt: "three", Timestamp: cp.Timestamp, AdapterIDs: []string{"n", "m"},
		Responses: []response{{ModelID: "n", Text: "half"}, {ModelID: "m", Text: "x", Completed: true}}, Verbose: true})
	mustEqual(t, map[string]string{oneMeta: marshal(meta), oneCont: marshal(content), one + "checkpoint.json": unfinished, one + "recipe.md": "# R\nversion: 1\n",
		"prompt_history.jsonl": "\"one \\u003c\\u0026\\u003e\"\n\"two\"\n", "recipes.json": "{\n  \"" + hash + "\": \"# R\\nversion: 1\\n\"\n}"}, got)

	// Another store that imports the export shows the same.
	dir := writeTree(t, filepath.Join(t.TempDir(), "p"), got)
	back := openAPI(t)
	mustBeClean(t, back, dir)
	mustEqual(t, got, exported(t, back))
	again, err := errata.Of(back, "ses_1").LoadCheckpoint(ctx)
	must(t, err)
	if again == nil || again.Prompt != cp.Prompt || marshal(again.Remaining()) != marshal(cp.Remaining()) || !again.Verbose {
		t.Errorf("the checkpoint is %+v, want %+v", again, cp)
	}
	// In the original store, the import adds only the files themselves.
	if r, err := (erratadir.Layout{}).Import(ctx, st, dir, layouts.ImportOptions{Merge: true}); err != nil || len(r.Refused) > 0 {
		t.Errorf("got %+v, error %v", r, err)
	}
	if after, err := s.Metadata(ctx); err != nil || marshal(after) != marshal(meta) {
		t.Errorf("%v: metadata\n%s, want\n%s", err, marshal(after), marshal(meta))
	}
}

// A recipe that a program set is exported in the original's form.
func TestExportedRecipe(t *testing.T) {
	st := openAPI(t)
	s := errata.Of(st, "ses_1")
	r := &errata.Recipe{Version: 1, Name: "Set", Models: []string{"m"}, SystemPrompt: "Be <brief>.", Tools: &recipe.Tools{Allowlist: []string{"bash"}}, ToolDescriptions: map[string]string{"bash": "Runs."}}
	must(t, s.SetSessionRecipe(t.Context(), r))
	const text = "# Set\nversion: 1\n\n## Models\n- m\n\n## System Prompt\nBe <brief>.\n\n## Tools\n- bash\n"
	got := exported(t, st)
	if got[one+"recipe.md"] != text {
		t.Errorf("recipe.md is %q", got[one+"recipe.md"])
	}
	back := openAPI(t)
	mustBeClean(t, back, writeTree(t, filepath.Join(t.TempDir(), "p"), got))
	mustEqual(t, got, exported(t, back))
	if taken, err := errata.RecipesOf(back).Get(t.Context(), r.Hash()); err != nil || string(taken) != text {
		t.Errorf("the recipe by its own hash is %q, error %v", taken, err)
	}
}

// A recipe has one hash, in any spelling and from any source. Hashes of all generations are found.
func TestOneHash(t *testing.T) {
	const odd = "# R\nVersion:  1\n\n## Constraints\n- timeout: 90\nmax_steps: 0\n\n## Models\n- m\n"
	const normal = "# R\nversion: 1\n\n## Constraints\ntimeout: 1m30s\n"
	files := map[string]string{"recipes.json": "{\n  \"cfg_v1_0\": {\n    \"name\": \"first\"\n  },\n  \"rcp_1\": \"# Third\\nversion: 1\\n\",\n  \"rcp_v1_0\": {\n    \"name\": \"second\"\n  }\n}"}
	for id, text := range map[string]string{"ses_1": odd, "ses_2": normal} {
		for name, data := range newSession(id, "m").ask("q", "a").files() {
			files[name] = data
		}
		files["sessions/"+id+"/recipe.md"] = text
	}
	st := openAPI(t)
	mustBeClean(t, st, folder(t, files))
	mustEqual(t, files, exported(t, st))
	hash, err := errata.RecipesOf(st).Put(t.Context(), []byte(normal))
	must(t, err)
	list, err := errata.RecipesOf(st).List(t.Context())
	must(t, err)
	if len(list) != 4 || string(list[hash]) != odd { // the first text is kept
		t.Errorf("got %d recipes: %q", len(list), list)
	}
	for hash, want := range map[string]string{"cfg_v1_0": "first", "rcp_v1_0": "second", "rcp_1": "Third", hash: "R"} {
		if name, err := errata.RecipesOf(st).Name(t.Context(), hash); name != want || err != nil {
			t.Errorf("the name of %s is %q, error %v", hash, name, err)
		}
	}
	for _, id := range []string{"ses_1", "ses_2"} {
		if r, err := errata.Of(st, id).SessionRecipe(t.Context()); err != nil || r.Hash() != hash {
			t.Errorf("%s: got %+v, error %v", id, r, err)
		}
	}
}
