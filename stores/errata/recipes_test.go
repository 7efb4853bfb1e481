package errata_test

import (
	_ "embed"
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/recipe"
)

// recipeText has every section.
//
//go:embed recipe/testdata/sample.md
var recipeText string

func mustParse(t *testing.T, text string) *errata.Recipe {
	t.Helper()
	r, err := recipe.Parse([]byte(text))
	must(t, err)
	return r
}

func newErrata(t *testing.T, st *tally.Store, o errata.Options) *errata.Store {
	t.Helper()
	e, err := errata.New(t.Context(), st, o)
	must(t, err)
	return e
}

func TestPanelRecipes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		t.Run("E-28 session recipe, else base", func(t *testing.T) {
			base := mustParse(t, recipeText)
			e := newErrata(t, st, errata.Options{SessionID: "e28", Recipe: base})
			base.Name, base.Tools.Guidance["bash"] = "changed", "changed"
			e.BaseRecipe().Tools.Allowlist[0] = "changed"
			wantEqual(t, "base", e.BaseRecipe(), mustParse(t, recipeText))
			if r, err := e.SessionRecipe(ctx); r != nil || err != nil {
				t.Errorf("got %+v, error %v", r, err)
			}
			active, err := e.ActiveRecipe(ctx)
			must(t, err)
			wantEqual(t, "active", active, mustParse(t, recipeText))
			other := mustParse(t, recipeText)
			other.Name, other.Models = "Other\n## odd", nil
			must(t, e.SetSessionRecipe(ctx, other))
			active, err = newErrata(t, st, errata.Options{SessionID: "e28", Recipe: base}).ActiveRecipe(ctx)
			must(t, err)
			wantEqual(t, "active", active, other)
			must(t, e.SetSessionRecipe(ctx, nil))
			if r, err := e.SessionRecipe(ctx); r != nil || err != nil {
				t.Errorf("got %+v, error %v", r, err)
			}
		})
		t.Run("E-29 hashes", func(t *testing.T) {
			r := mustParse(t, recipeText)
			e := newErrata(t, st, errata.Options{SessionID: "e29", Recipe: r})
			if hash, err := e.RecipeHash(ctx); hash != "" || err != nil {
				t.Errorf("the hash without a store is %q, error %v", hash, err)
			}
			if hash, err := newErrata(t, st, errata.Options{SessionID: "e29", RecipeStore: errata.RecipesOf(st)}).RecipeHash(ctx); hash != "" || err != nil {
				t.Errorf("the hash without a recipe is %q, error %v", hash, err)
			}
			e = newErrata(t, st, errata.Options{SessionID: "e29", Recipe: r, RecipeStore: errata.RecipesOf(st)})
			hash, err := e.RecipeHash(ctx)
			must(t, err)
			r.Models = []string{"other"}
			if again := r.Hash(); again != hash || !strings.HasPrefix(hash, "rcp_") || len(hash) != 68 {
				t.Errorf("two calls returned the hashes %q and %q", hash, again)
			}
			r.Constraints.MaxSteps = 3
			if r.Hash() == hash {
				t.Error("another configuration has the same hash")
			}
			snap := r.Snapshot([]string{"bash"})
			if h := snap.ConfigHash(); !strings.HasPrefix(h, "cfg_v1_") {
				t.Error(h)
			}
			second := snap
			second.Name = "other"
			if snap.ConfigHash() != second.ConfigHash() || snap.VersionedHash() == second.VersionedHash() || !strings.HasPrefix(snap.VersionedHash(), "rcp_v1_") {
				t.Error("the name counts in another generation than the second")
			}
		})
		t.Run("E-30 names", func(t *testing.T) {
			lookup := newErrata(t, st, errata.Options{SessionID: "e30", RecipeStore: errata.RecipesOf(st)}).RecipeNameLookup()
			named, err := errata.RecipesOf(st).Put(ctx, []byte(recipeText))
			must(t, err)
			unnamed, err := errata.RecipesOf(st).Put(ctx, []byte("version: 1\n"))
			must(t, err)
			broken, err := errata.RecipesOf(st).Put(ctx, []byte("no recipe"))
			must(t, err)
			snap, err := errata.RecipesOf(st).PutSnapshot(ctx, errata.RecipeSnapshot{Version: 1, Name: "old"})
			must(t, err)
			must(t, errata.RecipesOf(st).PutAs(ctx, "cfg_v0_1", []byte(`{"name":"oldest"}`)))
			must(t, errata.RecipesOf(st).PutAs(ctx, "cfg_v0_2", []byte(`null`)))
			for hash, want := range map[string]string{named: "Sample", unnamed: "default", broken: "", snap: "old", "cfg_v0_1": "oldest", "cfg_v0_2": "", "rcp_none": "", "": ""} {
				if name, err := lookup(ctx, hash); name != want || err != nil {
					t.Errorf("the name of %q is %q, error %v", hash, name, err)
				}
			}
			if name, err := newErrata(t, st, errata.Options{SessionID: "e30"}).RecipeNameLookup()(ctx, named); name != "" || err != nil {
				t.Errorf("name without a store: %q, error %v", name, err)
			}
		})
		t.Run("E-31 the first text is kept", func(t *testing.T) {
			first := strings.Replace(recipeText, "# Sample", "# Kept", 1)
			hash, err := errata.RecipesOf(st).Put(ctx, []byte(first))
			must(t, err)
			again, err := errata.RecipesOf(st).Put(ctx, []byte(strings.Replace(first, "- gpt-5", "- gpt-6", 1)))
			must(t, err)
			text, err := errata.RecipesOf(st).Get(ctx, hash)
			if err != nil || again != hash || string(text) != first {
				t.Errorf("%q, %q, %s, %v", hash, again, text, err)
			}
			hashes, err := errata.RecipesOf(st).HashesForName(ctx, "Kept")
			must(t, err)
			list, err := errata.RecipesOf(st).List(ctx)
			if err != nil || len(hashes) != 1 || hashes[0] != hash || list[hash] == nil {
				t.Errorf("%v, %v, %v", hashes, list, err)
			}
			if _, err := errata.RecipesOf(st).Get(ctx, "rcp_none"); !errors.Is(err, tally.ErrNotFound) {
				t.Error(err)
			}
		})
		t.Run("E-39 the recipe's snapshot", func(t *testing.T) {
			e := newErrata(t, st, errata.Options{SessionID: "e39r"})
			snap, err := e.BuildRecipeSnapshot(ctx)
			must(t, err)
			wantEqual(t, "without a recipe", toJSON(t, snap), `{"name":"default"}`)
			must(t, e.SetLastActiveTools(ctx, []string{"bash"}))
			must(t, e.SetSessionRecipe(ctx, mustParse(t, recipeText)))
			snap, err = e.BuildRecipeSnapshot(ctx)
			must(t, err)
			wantEqual(t, "with one", toJSON(t, snap), `{"version":1,"name":"Sample","system_prompt":"Be brief.\n\nBe right.","tool_guidance":{"bash":"Describe it.","read_file":"Only: when needed."},`+
				`"tools":["bash"],"bash_prefixes":["go test","go vet"],"tool_descriptions":{"bash":"Runs."},"constraints":{"timeout":"1m30s"},`+
				`"context":{"max_history_turns":20,"strategy":"auto_compact","compact_threshold":0.8,"task_mode":"sequential"},"output_processing":{"bash":{"max_lines":50,"truncation":"tail"}},"summarization_prompt":"Summarize."}`)
		})
	})
}
