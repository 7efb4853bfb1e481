package errata_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/recipe"
)

// knownHash is a row of testdata/hashes.txt.
type knownHash struct{ hash, command string }

// knownHashes reads the hashes that were made without this module, by their names.
func knownHashes(t *testing.T) map[string]knownHash {
	t.Helper()
	text, err := os.ReadFile("testdata/hashes.txt")
	must(t, err)
	row := regexp.MustCompile(`(?m)^(\w[\w ]*?) {2,}(\w+_[0-9a-f]{64}) +(.+)$`)
	known := make(map[string]knownHash)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		known[m[1]] = knownHash{m[2], m[3]}
	}
	if len(known) != 7 {
		t.Fatalf("got %d hashes", len(known))
	}
	return known
}

// A hash never changes: prompts and each generation of recipes have the original's hashes.
func TestKnownHashes(t *testing.T) {
	known := knownHashes(t)
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		t.Run("E-11 the hash of a prompt", func(t *testing.T) {
			const prompt = "Is there <life>? Grüße 😀"
			s := errata.Of(st, "known-11")
			mustPersist(t, s, errata.Run{Prompt: prompt, Responses: []errata.Response{answer("a", "A")}})
			mustPersist(t, s, errata.Run{Responses: []errata.Response{answer("a", "A")}})
			m := mustMetadata(t, s)
			c, err := s.Content(ctx)
			must(t, err)
			for i, name := range []string{"prompt", "no prompt"} {
				wantEqual(t, "summary of "+name, m.Runs[i].PromptHash, known[name].hash)
				wantEqual(t, "content of "+name, c.Runs[i].PromptHash, known[name].hash)
			}
		})
		t.Run("E-29 the hash of a recipe", func(t *testing.T) {
			normal, err := os.ReadFile("testdata/recipe-normal.md")
			must(t, err)
			for name, text := range map[string]string{"recipe": recipeText, "no name": "version: 1\n## Models\n- m\n", "no recipe": "no recipe"} {
				hash, err := errata.RecipesOf(st).Put(ctx, []byte(text))
				must(t, err)
				wantEqual(t, name, hash, known[name].hash)
			}
			wantEqual(t, "the normal form itself", recipe.TextHash(normal), known["recipe"].hash)
			e := newErrata(t, st, errata.Options{SessionID: "known-29", Recipe: mustParse(t, recipeText), RecipeStore: errata.RecipesOf(st)})
			hash, err := e.RecipeHash(ctx)
			must(t, err)
			wantEqual(t, "of the store's recipe", hash, known["recipe"].hash)

			old := errata.RecipeSnapshot{Version: 1, Name: "Old", SystemPrompt: "a < b & c", Tools: []string{"bash"}, Constraints: &recipe.SnapshotConstraints{Timeout: (90 * time.Second).String()}}
			wantEqual(t, "generation 1", old.ConfigHash(), known["generation 1"].hash)
			stored, err := errata.RecipesOf(st).PutSnapshot(ctx, old)
			must(t, err)
			wantEqual(t, "generation 2", stored, known["generation 2"].hash)
			must(t, errata.RecipesOf(st).PutAs(ctx, known["generation 1"].hash, []byte(`{"version":1,"name":"Oldest"}`)))
			for hash, want := range map[string]string{known["recipe"].hash: "Sample", known["generation 2"].hash: "Old", known["generation 1"].hash: "Oldest"} {
				name, err := errata.RecipesOf(st).Name(ctx, hash)
				must(t, err)
				wantEqual(t, "under "+hash, name, want)
			}
		})
	})
	t.Run("the commands give them", func(t *testing.T) {
		for _, tool := range []string{"sh", "sha256sum"} {
			_, err := exec.LookPath(tool)
			testkit.Needs(t, err == nil, tool)
		}
		for _, name := range slices.Sorted(maps.Keys(known)) {
			cmd := exec.Command("sh", "-c", known[name].command)
			cmd.Dir = "testdata"
			out, err := cmd.Output()
			must(t, err)
			sum, _, _ := strings.Cut(string(out), " ")
			if !strings.HasSuffix(known[name].hash, "_"+sum) {
				t.Errorf("%s: %q prints %s, want %s", name, known[name].command, sum, known[name].hash)
			}
		}
	})
}

// If a recipe was deleted, Put stores it again. Its hash has the text afterwards, and Put never reports success
// without it.
func TestDeletedRecipeComesBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx, recipes := t.Context(), errata.RecipesOf(st)
		hash, err := recipes.Put(ctx, []byte(recipeText))
		must(t, err)
		for range 2 {
			deleteDocument(t, st, errata.KindRecipe, hash)
			if _, err := recipes.Get(ctx, hash); !errors.Is(err, tally.ErrNotFound) {
				t.Fatalf("the deleted recipe: %v", err)
			}
			second := recipeText + "\n" // the new text, not the old one
			again, err := recipes.Put(ctx, []byte(second))
			must(t, err)
			text, err := recipes.Get(ctx, hash)
			if err != nil || again != hash || string(text) != second {
				t.Fatalf("the recipe %q is %.20q, error %v", again, text, err)
			}
			if list, err := recipes.List(ctx); err != nil || string(list[hash]) != second {
				t.Errorf("the list has %.20q, %v", list[hash], err)
			}
		}
	})
}

// deleteDocument deletes a document, as any client may.
func deleteDocument(t *testing.T, st *tally.Store, kind, id string) {
	t.Helper()
	doc := events.Document(st.Namespace(), kind, id)
	last, err := st.Log.Last(t.Context(), doc)
	must(t, err)
	e, err := events.New("urn:test", doc, &events.DocumentDeleted{Reason: "test"})
	must(t, err)
	_, err = st.Append(t.Context(), doc, log.At(last.Offset), e)
	must(t, err)
}
