package errata_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata"
)

// These are the names of the original, with a context and an error. If one is removed or changed, the test does not
// compile.
var _ interface {
	Histories(context.Context) (map[string][]errata.Turn, error)
	AppendHistories(ctx context.Context, panelIDs []string, responses []errata.Response, userPrompt string) (map[string]int, error)
	SetHistories(context.Context, map[string][]errata.Turn) error
	TruncateHistories(context.Context, map[string]int) error
	ClearHistories(context.Context) error
	PromptHistory(context.Context) ([]string, error)
	RecordPrompt(context.Context, string) (bool, error)
	Metadata(context.Context) (errata.Metadata, error)
	Content(context.Context) (errata.Content, error)
	SaveInitialMeta(context.Context) error
	PersistRunState(ctx context.Context, lastPrompt string, responses []errata.Response, collector errata.Collector, toolNames []string) error
	UpdateLastRunNote(context.Context, string) error
	RecordSelection(context.Context, errata.SelectionParams) error
	PushRewindEntry(context.Context, errata.RewindEntry) error
	PushFileSnapshots(context.Context, []errata.FileSnapshot) error
	CanRewind(context.Context) (bool, error)
	RewindStackLen(context.Context) (int, error)
	ClearRewindStack(context.Context) error
	Rewind(context.Context) (errata.RewindResult, error)
	AccumulateCost(ctx context.Context, modelID string, cost float64) error
	TotalCost(context.Context) (events.Amount, error)
	CostPerModel(context.Context) (map[string]events.Amount, error)
	LoadCheckpoint(context.Context) (*errata.Checkpoint, error)
	ClearCheckpoint(context.Context) error
	CheckpointPath() string
	BaseRecipe() *errata.Recipe
	SessionRecipe(context.Context) (*errata.Recipe, error)
	SetSessionRecipe(context.Context, *errata.Recipe) error
	ActiveRecipe(context.Context) (*errata.Recipe, error)
	LastActiveTools(context.Context) ([]string, error)
	SetLastActiveTools(context.Context, []string) error
	BuildRecipeSnapshot(context.Context) (errata.RecipeSnapshot, error)
	RecipeStore() *errata.Recipes
	RecipeHash(context.Context) (string, error)
	RecipeNameLookup() func(context.Context, string) (string, error)
	SessionID() string
	MetadataPath() string
	ContentPath() string
	SessionRecipePath() string
	SessionsDir() string
	RecipesDir() string
} = (*errata.Store)(nil)

var _ func(context.Context, *tally.Store, errata.Options) (*errata.Store, error) = errata.New

func TestErrataNames(t *testing.T) {
	t.Run("E-43 the names of the original, and their table", func(t *testing.T) {
		text, err := os.ReadFile("../../docs/from-errata.md")
		must(t, err)
		rows := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(string(text), -1)
		typ := reflect.TypeFor[*errata.Store]()
		methods := 0
		for _, row := range rows {
			if row[1] == "New" {
				methods++
				continue
			}
			if _, ok := typ.MethodByName(row[1]); ok {
				methods++
			}
		}
		if methods != 42 {
			t.Errorf("the table has %d of the 42 functions", methods)
		}
		for _, name := range []string{"Options", "RewindEntry", "RewindResult", "SelectionParams", "Store"} {
			if !strings.Contains(string(text), "| `"+name+"` |") {
				t.Errorf("the table lacks the type %s", name)
			}
		}
	})
}

func TestErrataStore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		t.Run("E-41 places and id", func(t *testing.T) {
			e := newErrata(t, st, errata.Options{SessionID: "ses_1", SessionPaths: errata.Paths{Dir: "data/sessions/ses_1", MetadataPath: "data/sessions/ses_1/session_metadata.json",
				ContentPath: "data/sessions/ses_1/session_content.json", CheckpointPath: "data/sessions/ses_1/checkpoint.json", RecipePath: "data/sessions/ses_1/recipe.md"}})
			have := []string{e.SessionID(), e.MetadataPath(), e.ContentPath(), e.CheckpointPath(), e.SessionRecipePath(), e.SessionsDir(), e.RecipesDir()}
			wantEqual(t, "places", have, []string{"ses_1", "data/sessions/ses_1/session_metadata.json", "data/sessions/ses_1/session_content.json", "data/sessions/ses_1/checkpoint.json",
				"data/sessions/ses_1/recipe.md", "data/sessions", "data/recipes"})
		})
		t.Run("a run as the original's program makes it", func(t *testing.T) {
			dir := t.TempDir()
			o := errata.Options{SessionID: "run", Meta: errata.Metadata{ID: "run", Models: []string{"a", "b"}}, Tree: errata.WorkTree{Dir: dir}, Recipe: mustParse(t, recipeText), RecipeStore: errata.RecipesOf(st)}
			e := newErrata(t, st, o)
			must(t, e.SaveInitialMeta(ctx))
			writeTree(t, dir, map[string]string{"f": "old"})
			for range 2 {
				playOriginal(t, e, dir)
			}
			e = newErrata(t, st, o) // the program starts again
			if n, err := e.RewindStackLen(ctx); n != 2 || err != nil {
				t.Errorf("got %d, error %v", n, err)
			}
			r, err := e.Rewind(ctx)
			if err != nil || r.FileMsg != "" || r.Note != "[rewound] Applied: f" || r.FeedIndex != 3 {
				t.Errorf("got %+v, error %v", r, err)
			}
			h, err := e.Histories(ctx)
			must(t, err)
			wantEqual(t, "histories", h, map[string][]errata.Turn{"a": turns("q", "A"), "b": turns("q", "B")})
			m, err := e.Metadata(ctx)
			must(t, err)
			if len(m.Runs) != 3 || m.Runs[0].Note != "Applied: f" || m.PromptCount != 2 || m.Runs[0].ConfigHash != o.Recipe.Hash() || m.Runs[0].Selected != "a" {
				t.Errorf("got %+v", m)
			}
			if total, err := e.TotalCost(ctx); err != nil || total != "0.6" {
				t.Errorf("got %v, error %v", total, err)
			}
			costs, err := e.Session().Costs(ctx)
			if err != nil || costs.OnBranch.Total.USD != "0.3" || costs.Spent.Models["a"].USD != "0.2" {
				t.Errorf("got %+v, error %v", costs, err)
			}
		})
		t.Run("E-24 a resume counts what had completed once", func(t *testing.T) {
			o := errata.Options{SessionID: "resume"}
			e := newErrata(t, st, o)
			saver := e.SaveCheckpoint("q", []string{"a", "b"}, false)
			must(t, saver.Finish(ctx, answer("a", "A")))
			must(t, saver.Finish(ctx, errata.Response{ModelID: "b", Interrupted: true}))
			must(t, e.AccumulateCost(ctx, "a", 0.1))
			must(t, e.AccumulateCost(ctx, "b", 0.2))
			e = newErrata(t, st, o)
			c, err := e.LoadCheckpoint(ctx)
			must(t, err)
			wantEqual(t, "remaining", c.Remaining(), []string{"b"})
			responses := c.Merge([]errata.Response{answer("b", "B")})
			must(t, e.AccumulateCost(ctx, "a", 0.1)) // as the original does for all of them
			must(t, e.AccumulateCost(ctx, "b", 0.2))
			must(t, e.PersistRunState(ctx, "q", responses, nil, nil))
			must(t, e.ClearCheckpoint(ctx))
			if total, err := e.TotalCost(ctx); err != nil || total != "0.5" {
				t.Errorf("got %v, error %v", total, err)
			}
		})
		t.Run("a session of another kind", func(t *testing.T) {
			_, err := errata.Of(st, "chat").AppendTurns(ctx, "main", []byte("1"))
			must(t, err)
			_, err = errata.New(ctx, st, errata.Options{SessionID: "chat"})
			if _, ok := errors.AsType[*tally.KindError](err); !ok {
				t.Errorf("got the error %v", err)
			}
		})
		t.Run("E-37 a run that cannot be read is named, not replaced", func(t *testing.T) {
			s := errata.Of(st, "e37")
			mustPersist(t, s, errata.Run{Prompt: "1"})
			e, err := events.New("test", s.Subject(), &events.RunFinished{Run: events.RunRef{Kind: "panel", ID: "x"}, Outcome: "completed", Result: []byte(`{"summary":{"timestamp":1},"content":{}}`)})
			must(t, err)
			_, err = st.Append(ctx, s.Subject(), log.Any, e)
			must(t, err)
			_, err = s.Metadata(ctx)
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Errorf("got the error %v", err)
			}
			mustAppendHistories(t, s, []string{"a"}, []errata.Response{answer("a", "A")}, "q") // other calls still work
			if h := mustHistories(t, s); len(h["a"]) != 2 {
				t.Errorf("got %v", h)
			}
		})
		t.Run("E-47 every change is durable, or an error", func(t *testing.T) {
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			s := errata.Of(st, "e47")
			playRun(t, s, "q", 0)
			e := newErrata(t, st, errata.Options{SessionID: "e47"})
			for name, change := range changes(e) {
				before, err := s.Load(ctx, "")
				must(t, err)
				if err := change(cancelled); err == nil {
					t.Errorf("%s: got no error though no write can succeed", name)
				}
				if after, err := s.Load(ctx, ""); err != nil || after.Offset() != before.Offset() {
					t.Errorf("%s: the call wrote something, error %v", name, err)
				}
			}
			for name, change := range changes(e) {
				head, err := st.Log.Head(ctx)
				must(t, err)
				if err := change(ctx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if after, err := st.Log.Head(ctx); err != nil || after <= head {
					t.Errorf("%s: the log has no new record when the call returns, error %v", name, err)
				}
			}
		})
	})
}

// changes returns the calls that change a session, in an order in which each makes a change.
func changes(e *errata.Store) func(func(string, func(context.Context) error) bool) {
	panel, responses := []string{"a"}, []errata.Response{answer("a", "A")}
	list := []struct {
		name string
		call func(context.Context) error
	}{
		{"AppendHistories", func(ctx context.Context) error { _, err := e.AppendHistories(ctx, panel, responses, "p"); return err }},
		{"PersistRunState", func(ctx context.Context) error { return e.PersistRunState(ctx, "p", responses, nil, panel) }},
		{"PushRewindEntry", func(ctx context.Context) error { return e.PushRewindEntry(ctx, errata.RewindEntry{Prompt: "p"}) }},
		{"PushFileSnapshots", func(ctx context.Context) error {
			return e.PushFileSnapshots(ctx, []errata.FileSnapshot{{Path: "x", DidNotExist: true}})
		}},
		{"UpdateLastRunNote", func(ctx context.Context) error { return e.UpdateLastRunNote(ctx, "n") }},
		{"RecordSelection", func(ctx context.Context) error {
			return e.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a"})
		}},
		{"AccumulateCost", func(ctx context.Context) error { return e.AccumulateCost(ctx, "a", 1) }},
		{"SetHistories", func(ctx context.Context) error {
			return e.SetHistories(ctx, map[string][]errata.Turn{"a": turns("1", "2", "3"), "b": turns("x")})
		}},
		{"TruncateHistories", func(ctx context.Context) error { return e.TruncateHistories(ctx, map[string]int{"a": 1}) }},
		{"SetSessionRecipe", func(ctx context.Context) error { return e.SetSessionRecipe(ctx, &errata.Recipe{Name: "r"}) }},
		{"SetLastActiveTools", func(ctx context.Context) error { return e.SetLastActiveTools(ctx, []string{"t"}) }},
		{"CheckpointSaver", func(ctx context.Context) error {
			return e.Session().SaveCheckpoint("", "p", panel, false).Update(ctx, responses[0])
		}},
		{"ClearCheckpoint", e.ClearCheckpoint},
		{"Rewind", func(ctx context.Context) error { _, err := e.Rewind(ctx); return err }},
		{"ClearHistories", e.ClearHistories},
		{"ClearRewindStack", e.ClearRewindStack},
		{"RecordPrompt", func(ctx context.Context) error { _, err := e.RecordPrompt(ctx, "p"); return err }},
	}
	return func(yield func(string, func(context.Context) error) bool) {
		for _, c := range list {
			if !yield(c.name, c.call) {
				return
			}
		}
	}
}

// playOriginal makes the calls of the original's program for one run.
func playOriginal(t *testing.T, e *errata.Store, dir string) {
	t.Helper()
	ctx := t.Context()
	responses := []errata.Response{answer("a", "A"), answer("b", "B")}
	_, err := e.RecordPrompt(ctx, "q")
	must(t, err)
	must(t, e.AccumulateCost(ctx, "a", 0.1))
	must(t, e.AccumulateCost(ctx, "b", 0.2))
	lengths, err := e.AppendHistories(ctx, []string{"a", "b"}, responses, "q")
	must(t, err)
	must(t, e.PersistRunState(ctx, "q", responses, nil, []string{"bash"}))
	must(t, e.PushRewindEntry(ctx, errata.RewindEntry{HistoryLengths: lengths, FeedIndex: 3, Prompt: "q"}))
	snaps, err := errata.SnapshotFiles(dir, []errata.FileWrite{{Path: "f"}})
	must(t, err)
	writeTree(t, dir, map[string]string{"f": "new"})
	must(t, e.PushFileSnapshots(ctx, snaps))
	must(t, e.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a", AppliedFiles: []string{"f"}}))
	must(t, e.UpdateLastRunNote(ctx, "Applied: f"))
}
