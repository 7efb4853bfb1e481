package erratadir_test

import (
	"path/filepath"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/recipe"
)

// persist makes one run of a session with a recipe.
func persist(t *testing.T, st *tally.Store, id string, recipes *errata.Recipes, text string) *errata.Store {
	t.Helper()
	r, err := recipe.Parse([]byte(text))
	must(t, err)
	e, err := errata.New(t.Context(), st, errata.Options{SessionID: id, Recipe: r, RecipeStore: recipes, Meta: errata.Metadata{ID: id}})
	must(t, err)
	must(t, e.PersistRunState(t.Context(), "q", []errata.Response{{ModelID: "m", Text: "a"}}, nil, nil))
	return e
}

// The models are not part of a recipe's hash, but of its text. Each session exports the recipe.md of its own runs,
// even if another session had the same configuration before.
func TestOwnRecipe(t *testing.T) {
	const first = "# R\nversion: 1\n\n## Models\n- gpt\n\n## System Prompt\nBe brief.\n"
	const second = "# R\nversion: 1\n\n## Models\n- claude\n- gemini\n\n## System Prompt\nBe brief.\n"
	const third = "# R\nversion: 1\n\n## Models\n- claude\n\n## System Prompt\nBe long.\n"
	const path = "/recipe.md"
	t.Run("E-11 sessions of one configuration and other models", func(t *testing.T) {
		st := openAPI(t)
		persist(t, st, "ses_1", errata.RecipesOf(st), first)
		persist(t, st, "ses_2", errata.RecipesOf(st), second)
		got := exported(t, st)
		for id, want := range map[string]string{"ses_1": first, "ses_2": second} {
			if text := got["sessions/"+id+path]; text != want {
				t.Errorf("the recipe of %s is\n%s, want\n%s", id, text, want)
			}
		}
		back := openAPI(t)
		mustBeClean(t, back, writeTree(t, filepath.Join(t.TempDir(), "p"), got))
		mustEqual(t, got, exported(t, back))
	})
	t.Run("E-11 the recipe of the last run", func(t *testing.T) {
		st := openAPI(t)
		persist(t, st, "ses_0", errata.RecipesOf(st), first)
		for _, text := range []string{second, third, second} {
			persist(t, st, "ses_1", errata.RecipesOf(st), text)
			if got := exported(t, st)["sessions/ses_1"+path]; got != text {
				t.Errorf("the recipe is\n%s, want\n%s", got, text)
			}
		}
		// A run with its own recipe hash, as programs without a panel write it.
		hash := recipe.TextHash([]byte(third))
		_, err := errata.Of(st, "ses_1").PersistRunState(t.Context(), errata.Run{Prompt: "q", ConfigHash: hash, Responses: []errata.Response{{ModelID: "m", Text: "a"}}})
		must(t, err)
		if got := exported(t, st)["sessions/ses_1"+path]; got != third {
			t.Errorf("the recipe is\n%s, want\n%s", got, third)
		}
	})
	t.Run("E-11 without a store of recipes", func(t *testing.T) {
		st := openAPI(t)
		persist(t, st, "ses_1", nil, first)
		if text := exported(t, st)["sessions/ses_1"+path]; text != first {
			t.Errorf("the recipe is %q", text)
		}
	})
	t.Run("a store that was written before recipes were kept by session", func(t *testing.T) {
		st := openAPI(t)
		hash, err := errata.RecipesOf(st).Put(t.Context(), []byte(first))
		must(t, err)
		_, err = errata.Of(st, "ses_1").PersistRunState(t.Context(), errata.Run{Prompt: "q", ConfigHash: hash, Responses: []errata.Response{{ModelID: "m", Text: "a"}}})
		must(t, err)
		if text := exported(t, st)["sessions/ses_1"+path]; text != first {
			t.Errorf("the recipe is %q", text)
		}
	})
	t.Run("the same recipe is stored once", func(t *testing.T) {
		st := openAPI(t)
		persist(t, st, "ses_1", errata.RecipesOf(st), first)
		persist(t, st, "ses_1", errata.RecipesOf(st), first)
		n := 0
		for info, err := range st.Subjects(t.Context(), errata.KindRecipeText) {
			must(t, err)
			n += int(info.Count)
		}
		if n != 1 {
			t.Errorf("got %d revisions of one text", n)
		}
	})
}
