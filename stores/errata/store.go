package errata

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// Options select the session of a Store.
type Options struct {
	PromptHistPath string // file of the prompts of all sessions; with SessionPaths in one data folder: see Paths
	SessionPaths   Paths
	SessionID      string
	Meta           Metadata
	RecipeStore    *Recipes // nil: recipes have no hashes
	Recipe         *Recipe  // the base recipe; New copies it
	Tree           WorkTree // where Rewind restores files; default: nowhere
}

// Paths are the files of a session in errata's data folder. If the store keeps trees (embedded.Options.Trees), New
// makes that folder follow the store in both directions: it imports the files of all sessions there, and after each
// call the files show the changes. Otherwise the paths are only names, and no file is read or written.
type Paths struct {
	Dir            string
	MetadataPath   string
	ContentPath    string
	CheckpointPath string
	RecipePath     string
}

// Collector returns the events of a run by model.
type Collector interface {
	Events(modelID string) []Event
}

// Store is a panel session with the names of errata's session datastore, each with a context and an error, for
// programs that migrate. Its data is in a Session. It adds the data that the original keeps in memory: the base
// recipe, and which calls belong to one run. It is safe for concurrent use, one run at a time. docs/from-errata.md
// lists the names.
type Store struct {
	st   *tally.Store
	s    *Session
	opts Options
	base *Recipe

	mu  sync.Mutex // guards run
	run calls
}

// calls has the calls of one run.
type calls struct {
	id         string
	at         events.Offset // beginning of the run, from AppendHistories
	did        map[string]bool
	costs      map[string]int // number of costs by model
	checkpoint *Checkpoint
}

// New returns the store of the session that the options name, which need not exist. New writes nothing, except for
// the import of existing files: see Paths.
func New(ctx context.Context, st *tally.Store, o Options) (*Store, error) {
	e := &Store{st: st, s: Of(st, o.SessionID), opts: o, base: o.Recipe.Clone()}
	if err := e.s.Subject().Validate(); err != nil {
		return nil, err
	}
	if err := o.keepFiles(ctx, st); err != nil {
		return nil, err
	}
	now, err := e.s.Outline(ctx)
	if errors.Is(err, tally.ErrNotFound) {
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	return e, tally.CheckKind(now.Subject(), now.Ledger(), events.KindPanel)
}

// Session returns the handle behind the store, with additional methods.
func (e *Store) Session() *Session { return e.s }

// enter returns the run of a call: the current one, or a new one if that has had such a call already.
func (e *Store) enter(call string) calls {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run.id == "" || e.run.did[call] || call == "cost" && e.run.did["append"] && e.run.did["persist"] && e.run.did["push"] {
		e.begin(NewID(RunIDPrefix), nil)
	}
	return e.run
}

func (e *Store) begin(id string, c *Checkpoint) {
	e.run = calls{id: id, did: make(map[string]bool), costs: make(map[string]int), checkpoint: c}
}

// done records a successful call.
func (e *Store) done(run, call string, at events.Offset) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run.id == run {
		e.run.did[call] = true
		if call == "append" {
			e.run.at = at
		}
	}
}

// Histories returns the turns in effect of every model.
func (e *Store) Histories(ctx context.Context) (map[string][]Turn, error) {
	return e.s.Histories(ctx)
}

// AppendHistories is Session.AppendHistories. It returns the lengths before.
func (e *Store) AppendHistories(ctx context.Context, panelIDs []string, responses []Response, userPrompt string) (map[string]int, error) {
	run := e.enter("append")
	a, err := e.s.AppendHistories(ctx, panelIDs, responses, userPrompt)
	if err == nil {
		e.done(run.id, "append", a.At)
	}
	return a.Lengths, err
}

// SetHistories replaces all histories.
func (e *Store) SetHistories(ctx context.Context, h map[string][]Turn) error {
	return e.s.SetHistories(ctx, h)
}

// TruncateHistories shortens histories.
func (e *Store) TruncateHistories(ctx context.Context, lengths map[string]int) error {
	return e.s.TruncateHistories(ctx, lengths)
}

// ClearHistories removes all histories; the rewind stack stays.
func (e *Store) ClearHistories(ctx context.Context) error { return e.s.ClearHistories(ctx) }

// PromptHistory returns the prompts of all sessions, newest first.
func (e *Store) PromptHistory(ctx context.Context) ([]string, error) {
	return PromptsOf(e.st).List(ctx)
}

// RecordPrompt adds a prompt unless it equals the newest one.
func (e *Store) RecordPrompt(ctx context.Context, prompt string) (bool, error) {
	return PromptsOf(e.st).Record(ctx, prompt)
}

// Metadata returns the session in the form of session_metadata.json. Before the session exists, it returns the
// metadata of the options.
func (e *Store) Metadata(ctx context.Context) (Metadata, error) {
	v, err := e.s.view(ctx)
	if err != nil {
		return Metadata{}, err
	}
	v.Assume(events.Raw(panel.JSON(e.opts.Meta)))
	m := v.metadata(e.s.ID())
	if len(m.Models) == 0 {
		m.Models = slices.Clone(e.opts.Meta.Models)
	}
	return m, nil
}

// Content returns the session in the form of session_content.json.
func (e *Store) Content(ctx context.Context) (Content, error) { return e.s.Content(ctx) }

// SaveInitialMeta creates the session with the metadata of the options.
func (e *Store) SaveInitialMeta(ctx context.Context) error {
	return e.s.SaveInitialMeta(ctx, e.opts.Meta)
}

// PersistRunState records a run. The models of the options replace those of the session. It appends up to five
// events, the run itself last. A crash before that leaves a session of the same kind, models and recipe without the
// run; the same call again appends the rest.
func (e *Store) PersistRunState(ctx context.Context, lastPrompt string, responses []Response, collector Collector, toolNames []string) error {
	if err := e.SaveInitialMeta(ctx); err != nil {
		return err
	}
	if len(e.opts.Meta.Models) > 0 {
		if err := e.s.SetModels(ctx, e.opts.Meta.Models); err != nil {
			return err
		}
	}
	hash, err := e.RecipeHash(ctx)
	if err == nil {
		err = e.keepRecipe(ctx)
	}
	if err != nil {
		return err
	}
	call := e.enter("persist")
	run := Run{ID: call.id, Prompt: lastPrompt, Responses: responses, Tools: toolNames, ConfigHash: hash, Events: make(map[string][]Event)}
	for _, r := range responses {
		if collector != nil {
			run.Events[r.ModelID] = collector.Events(r.ModelID)
		}
	}
	if _, err := e.s.PersistRunState(ctx, run); err != nil {
		return err
	}
	e.done(call.id, "persist", 0)
	return nil
}

// UpdateLastRunNote replaces the note of the last run.
func (e *Store) UpdateLastRunNote(ctx context.Context, note string) error {
	return e.s.UpdateLastRunNote(ctx, note)
}

// RecordSelection records a selection among the answers of the last run.
func (e *Store) RecordSelection(ctx context.Context, p SelectionParams) error {
	return e.s.RecordSelection(ctx, p)
}

// PushRewindEntry puts an entry on the rewind stack.
func (e *Store) PushRewindEntry(ctx context.Context, entry RewindEntry) error {
	run := e.enter("push")
	if entry.Run == "" {
		entry.Run = run.id
	}
	if entry.At == 0 {
		entry.At = run.at
	}
	_, err := e.s.PushRewindEntry(ctx, entry)
	if err == nil {
		e.done(run.id, "push", 0)
	}
	return err
}

// PushFileSnapshots adds the files to the newest entry.
func (e *Store) PushFileSnapshots(ctx context.Context, snaps []FileSnapshot) error {
	return e.s.PushFileSnapshots(ctx, e.opts.Tree, snaps)
}

// CanRewind reports whether the rewind stack has an entry.
func (e *Store) CanRewind(ctx context.Context) (bool, error) { return e.s.CanRewind(ctx) }

// RewindStackLen returns the number of entries on the rewind stack.
func (e *Store) RewindStackLen(ctx context.Context) (int, error) {
	return e.s.RewindStackLen(ctx)
}

// ClearRewindStack empties the rewind stack.
func (e *Store) ClearRewindStack(ctx context.Context) error {
	return e.s.ClearRewindStack(ctx, "clear")
}

// Rewind undoes the newest run on the rewind stack.
func (e *Store) Rewind(ctx context.Context) (RewindResult, error) {
	return e.s.Rewind(ctx, e.opts.Tree)
}

// AccumulateCost records the cost of a model. A resume counts the models that had completed before only once, however
// often it is repeated.
func (e *Store) AccumulateCost(ctx context.Context, modelID string, cost float64) error {
	usd, err := USD(cost)
	if err != nil {
		return err
	}
	run := e.enter("cost")
	e.mu.Lock()
	defer e.mu.Unlock()
	n := run.costs[modelID]
	part := fmt.Sprint(n)
	if run.checkpoint != nil && slices.Contains(run.checkpoint.Remaining(), modelID) {
		part = fmt.Sprintf("%d after %v", n, run.checkpoint.At)
	}
	if err := e.s.AccumulateCost(ctx, tally.Cost{Model: modelID, USD: usd, Run: events.RunRef{ID: run.id}, Part: part}); err != nil {
		return err
	}
	run.costs[modelID]++
	return nil
}

// TotalCost returns the costs of the session.
func (e *Store) TotalCost(ctx context.Context) (events.Amount, error) {
	return e.s.TotalCost(ctx)
}

// CostPerModel returns the costs of each model.
func (e *Store) CostPerModel(ctx context.Context) (map[string]events.Amount, error) {
	return e.s.CostPerModel(ctx)
}

// SaveCheckpoint begins the checkpoint of the run that is about to start.
func (e *Store) SaveCheckpoint(prompt string, adapterIDs []string, verbose bool) *CheckpointSaver {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(NewID(RunIDPrefix), nil)
	return e.s.SaveCheckpoint(e.run.id, prompt, adapterIDs, verbose)
}

// LoadCheckpoint returns the newest unfinished run, or nil. The next calls belong to that run.
func (e *Store) LoadCheckpoint(ctx context.Context) (*Checkpoint, error) {
	c, err := e.s.LoadCheckpoint(ctx)
	if err == nil && c != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.begin(c.Run, c)
	}
	return c, err
}

// ClearCheckpoint records that no run can be resumed.
func (e *Store) ClearCheckpoint(ctx context.Context) error { return e.s.ClearCheckpoint(ctx) }

// BaseRecipe returns a copy of the options' recipe.
func (e *Store) BaseRecipe() *Recipe { return e.base.Clone() }

// SessionRecipe returns the recipe that was set for the session, or nil.
func (e *Store) SessionRecipe(ctx context.Context) (*Recipe, error) {
	return e.s.SessionRecipe(ctx)
}

// SetSessionRecipe sets the recipe of the session.
func (e *Store) SetSessionRecipe(ctx context.Context, r *Recipe) error {
	return e.s.SetSessionRecipe(ctx, r)
}

// ActiveRecipe returns the recipe of the session, or else the base recipe.
func (e *Store) ActiveRecipe(ctx context.Context) (*Recipe, error) {
	r, err := e.s.SessionRecipe(ctx)
	if err != nil || r != nil {
		return r, err
	}
	return e.BaseRecipe(), nil
}

// LastActiveTools returns the names of the tools of the last run.
func (e *Store) LastActiveTools(ctx context.Context) ([]string, error) {
	return e.s.LastActiveTools(ctx)
}

// SetLastActiveTools sets the active tools.
func (e *Store) SetLastActiveTools(ctx context.Context, names []string) error {
	return e.s.SetLastActiveTools(ctx, names)
}

// BuildRecipeSnapshot returns the active recipe with the tools of the last run.
func (e *Store) BuildRecipeSnapshot(ctx context.Context) (RecipeSnapshot, error) {
	r, err := e.ActiveRecipe(ctx)
	if err != nil {
		return RecipeSnapshot{}, err
	}
	tools, err := e.s.LastActiveTools(ctx)
	return r.Snapshot(tools), err
}

// RecipeStore returns the recipes of the options.
func (e *Store) RecipeStore() *Recipes { return e.opts.RecipeStore }

// RecipeHash stores the active recipe and returns its hash. Without a recipe or a store for it, RecipeHash returns
// "".
func (e *Store) RecipeHash(ctx context.Context) (string, error) {
	if e.opts.RecipeStore == nil {
		return "", nil
	}
	r, err := e.ActiveRecipe(ctx)
	if err != nil || r == nil {
		return "", err
	}
	hash := r.Hash()
	return hash, e.opts.RecipeStore.PutAs(ctx, hash, []byte(r.Markdown()))
}

// keepRecipe stores the active recipe as the session's recipe.md, with its models.
func (e *Store) keepRecipe(ctx context.Context) error {
	r, err := e.ActiveRecipe(ctx)
	if err != nil || r == nil {
		return err
	}
	return e.s.keepRecipe(ctx, []byte(r.Markdown()))
}

// RecipeNameLookup returns a function from hashes to names of recipes.
func (e *Store) RecipeNameLookup() func(ctx context.Context, hash string) (string, error) {
	return func(ctx context.Context, hash string) (string, error) {
		if e.opts.RecipeStore == nil {
			return "", nil
		}
		return e.opts.RecipeStore.Name(ctx, hash)
	}
}

// SessionID returns the session's id.
func (e *Store) SessionID() string { return e.opts.SessionID }

// MetadataPath returns the path of session_metadata.json.
func (e *Store) MetadataPath() string { return e.opts.SessionPaths.MetadataPath }

// ContentPath returns the path of session_content.json.
func (e *Store) ContentPath() string { return e.opts.SessionPaths.ContentPath }

// CheckpointPath returns the path of checkpoint.json.
func (e *Store) CheckpointPath() string { return e.opts.SessionPaths.CheckpointPath }

// SessionRecipePath returns the path of the session's recipe.md.
func (e *Store) SessionRecipePath() string { return e.opts.SessionPaths.RecipePath }

// SessionsDir returns the folder that contains the folders of all sessions.
func (e *Store) SessionsDir() string {
	return filepath.Dir(filepath.Dir(e.opts.SessionPaths.MetadataPath))
}

// RecipesDir returns the folder of the recipes, beside SessionsDir.
func (e *Store) RecipesDir() string {
	return filepath.Join(filepath.Dir(e.SessionsDir()), "recipes")
}
