package errata_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// optionsIn returns the options of a session whose files are in a data folder.
func optionsIn(data, id string) errata.Options {
	dir := filepath.Join(data, "sessions", id)
	return errata.Options{SessionID: id, PromptHistPath: filepath.Join(data, "prompt_history.jsonl"), Meta: errata.Metadata{ID: id, Models: []string{"a", "b"}},
		SessionPaths: errata.Paths{Dir: dir, MetadataPath: filepath.Join(dir, "session_metadata.json"), ContentPath: filepath.Join(dir, "session_content.json"),
			CheckpointPath: filepath.Join(dir, "checkpoint.json"), RecipePath: filepath.Join(dir, "recipe.md")}}
}

// bound is a store whose process keeps errata's data folder.
type bound struct {
	t         *testing.T
	data, dir string
	*tally.Store
	end func()
}

func newBound(t *testing.T) *bound {
	b := &bound{t: t, data: filepath.Join(t.TempDir(), "data"), dir: t.TempDir()}
	b.open()
	return b
}

func (b *bound) open() { b.Store, b.end = storetest.Live(b.t, b.dir, erratadir.Layout{}) }

func (b *bound) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.data, name))
	must(b.t, err)
	return string(text)
}

func (b *bound) write(name, text string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Dir(filepath.Join(b.data, name)), 0o750))
	must(b.t, os.WriteFile(filepath.Join(b.data, name), []byte(text), 0o600))
}

// equalsExport checks that the folder equals an export of the store.
func (b *bound) equalsExport() {
	b.t.Helper()
	want, r := layouttest.Exported(b.t, b.Store, erratadir.Layout{})
	layouttest.MustBeClean(b.t, r)
	layouttest.MustEqual(b.t, want, layouttest.ReadLive(b.t, b.data))
}

const (
	oldMeta    = `{"id":"ses_old","created_at":"2026-03-01T09:00:00Z","last_active_at":"2026-03-01T09:01:00Z","models":["a","b"],"first_prompt":"before","last_prompt":"before","prompt_count":1,"runs":[{"timestamp":"2026-03-01T09:01:00Z","prompt_hash":"ph_1","prompt_preview":"before","models":["a"]}]}`
	oldContent = `{"session_id":"ses_old","runs":[{"prompt":"before","models":[{"model_id":"a","text":"A","events":[]}]}],"histories":{"a":[{"role":"user","content":"before"},{"role":"assistant","content":"A"}]}}`
)

func TestBoundFiles(t *testing.T) {
	ctx := t.Context()
	t.Run("E-43 E-41 what is there when the store is opened is taken in, and a run shows in its files", func(t *testing.T) {
		b := newBound(t)
		for name, text := range map[string]string{"prompt_history.jsonl": "\"first\"\n\"before\"\n", "sessions/ses_old/session_metadata.json": oldMeta, "sessions/ses_old/session_content.json": oldContent} {
			b.write(name, text)
		}
		for i := range 15 { // more than a tree of so few files imports without a check, once it knows them
			id := fmt.Sprintf("ses_%d", i)
			b.write("sessions/"+id+"/session_metadata.json", strings.ReplaceAll(oldMeta, "ses_old", id))
		}
		before := layouttest.ReadLive(t, b.data)
		e := newErrata(t, b.Store, optionsIn(b.data, "ses_old"))
		layouttest.MustEqual(t, before, layouttest.ReadLive(t, b.data)) // byte for byte
		m, err := e.Metadata(ctx)
		must(t, err)
		if m.PromptCount != 1 || len(m.Runs) != 1 || m.FirstPrompt != "before" {
			t.Errorf("got %+v", m)
		}
		wantEqual(t, "histories", need(e.Histories(ctx)), map[string][]errata.Turn{"a": turns("before", "A")})
		wantEqual(t, "prompts", need(e.PromptHistory(ctx)), []string{"before", "first"})
		if list := need(errata.List(ctx, b.Store)); len(list) != 16 {
			t.Errorf("got %d sessions", len(list))
		}

		playOriginal(t, e, t.TempDir())
		if got := b.read("prompt_history.jsonl"); got != "\"first\"\n\"before\"\n\"q\"\n" {
			t.Errorf("the prompts are %q", got)
		}
		var meta errata.Metadata
		must(t, json.Unmarshal([]byte(b.read("sessions/ses_old/session_metadata.json")), &meta))
		if meta.PromptCount != 2 || len(meta.Runs) != 2 || meta.LastPrompt != "q" || meta.Runs[1].Note != "Applied: f" || meta.Runs[1].Selected != "a" {
			t.Errorf("got %+v", meta)
		}
		var content errata.Content
		must(t, json.Unmarshal([]byte(b.read("sessions/ses_old/session_content.json")), &content))
		if len(content.Runs) != 2 || content.Runs[1].Prompt != "q" || len(content.Histories["a"]) != 4 {
			t.Errorf("got %+v", content)
		}
		b.equalsExport()
		b.end()

		// Another program, without tally, changes the files, and then this program continues.
		b.write("prompt_history.jsonl", b.read("prompt_history.jsonl")+"\"offline\"\n")
		meta.PromptCount, meta.LastPrompt = 3, "offline"
		meta.Runs = append(meta.Runs, errata.RunSummary{Timestamp: meta.LastActiveAt, PromptHash: "ph_2", PromptPreview: "offline", Models: []string{"b"}})
		text, err := json.Marshal(meta)
		must(t, err)
		b.write("sessions/ses_old/session_metadata.json", string(text))
		b.open()
		e = newErrata(t, b.Store, optionsIn(b.data, "ses_old"))
		if m := need(e.Metadata(ctx)); m.PromptCount != 3 || len(m.Runs) != 3 || m.Runs[2].PromptPreview != "offline" || m.Runs[1].Note != "Applied: f" {
			t.Errorf("got %+v", m)
		}
		wantEqual(t, "prompts", need(e.PromptHistory(ctx)), []string{"offline", "q", "before", "first"})
		b.equalsExport()
		t.Run("D-41 the files alone give equal sessions", func(t *testing.T) { layouttest.Alone(t, b.Store, erratadir.Layout{}, b.data) })
	})
	t.Run("E-41 each place is that of a file", func(t *testing.T) {
		b := newBound(t)
		o := optionsIn(b.data, "ses_1")
		o.Recipe, o.RecipeStore = mustParse(t, recipeText), errata.RecipesOf(b.Store)
		e := newErrata(t, b.Store, o)
		playOriginal(t, e, t.TempDir())
		must(t, e.SetSessionRecipe(ctx, o.Recipe))
		saver := e.SaveCheckpoint("again", []string{"a", "b"}, false)
		must(t, saver.Finish(ctx, answer("a", "A")))
		for _, p := range []string{o.PromptHistPath, e.MetadataPath(), e.ContentPath(), e.CheckpointPath(), e.SessionRecipePath(), e.SessionsDir()} {
			if _, err := os.Stat(p); err != nil {
				t.Error(err)
			}
		}
		must(t, e.ClearCheckpoint(ctx))
		if _, err := os.Stat(e.CheckpointPath()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file of a cleared checkpoint: %v", err)
		}
		b.equalsExport()
	})
	t.Run("E-08 prompts of all sessions, oldest first in the file, from both sides", func(t *testing.T) {
		b := newBound(t)
		one := newErrata(t, b.Store, optionsIn(b.data, "ses_1"))
		two := newErrata(t, b.Store, optionsIn(b.data, "ses_2"))
		for i, e := range []*errata.Store{one, two, one} {
			need(e.RecordPrompt(ctx, fmt.Sprint("p", i)))
		}
		if got := b.read("prompt_history.jsonl"); got != "\"p0\"\n\"p1\"\n\"p2\"\n" {
			t.Errorf("got %q", got)
		}
		f, err := os.OpenFile(filepath.Join(b.data, "prompt_history.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString("\"by hand\"\n")
		must(t, errors.Join(err, f.Close()))
		three := newErrata(t, b.Store, optionsIn(b.data, "ses_3"))
		wantEqual(t, "prompts", need(three.PromptHistory(ctx)), []string{"by hand", "p2", "p1", "p0"})
		need(three.RecordPrompt(ctx, "p3"))
		if got := b.read("prompt_history.jsonl"); got != "\"p0\"\n\"p1\"\n\"p2\"\n\"by hand\"\n\"p3\"\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("E-43 paths of two data folders, or that are no files of one", func(t *testing.T) {
		b := newBound(t)
		for field, change := range map[string]func(*errata.Options){
			"PromptHistPath":   func(o *errata.Options) { o.PromptHistPath = filepath.Join(b.data, "history.jsonl") },
			"SessionPaths.Dir": func(o *errata.Options) { o.PromptHistPath = filepath.Join(t.TempDir(), "prompt_history.jsonl") },
			"SessionPaths.MetadataPath": func(o *errata.Options) {
				o.SessionPaths.MetadataPath = filepath.Join(b.data, "sessions/ses_2/session_metadata.json")
			},
		} {
			o := optionsIn(b.data, "ses_1")
			change(&o)
			_, err := errata.New(ctx, b.Store, o)
			if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field != field {
				t.Errorf("%s: got the error %v", field, err)
			}
		}
		if _, err := os.Stat(b.data); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got the error %v", err)
		}
	})
	t.Run("E-43 a store that keeps no trees has the paths for names", func(t *testing.T) {
		b := newBound(t)
		st := storetest.Open(t, "memory")
		e := newErrata(t, st, optionsIn(b.data, "ses_1"))
		must(t, e.SaveInitialMeta(ctx))
		if _, err := os.Stat(b.data); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(e.SessionsDir()) != b.data {
			t.Errorf("got the error %v", err)
		}
		if err := st.KeepFiles(ctx, "errata", b.data); !errors.Is(err, tally.ErrNoTrees) {
			t.Errorf("got the error %v", err)
		}
		if err := b.KeepFiles(ctx, "other", b.data); !errors.Is(err, tally.ErrNoTrees) {
			t.Errorf("got the error %v", err)
		}
	})
}
