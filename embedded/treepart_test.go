package embedded_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// parted is a project with a tree of a team. The project's file says which part of the store the tree shows.
type parted struct{ noted }

func newParted(t *testing.T) parted { return parted{newNoted(t, "")} }

func (p parted) opened(more string) *tally.Store {
	p.t.Helper()
	p.own("[[tree]]\nlayout = \"tavern\"\ndir = \"" + p.folder + "\"\n" + more)
	return p.open(embedded.Options{Trees: func(string) (layouts.Layout, bool) { return taverndir.Layout{}, true }, Kinds: tavern.Kinds()})
}

// own writes the user's own configuration, and removes the project's.
func (p parted) own(text string) {
	p.t.Helper()
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "tally")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.RemoveAll(filepath.Join(p.project, config.FileName))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// save stores a document, and waits until the files show the log.
func (p parted) save(st *tally.Store, kind, id, text, layer string) {
	p.t.Helper()
	rev, err := st.Documents().Save(p.t.Context(), kind, id, tally.Write{Data: []byte(text), Layer: layer})
	if err == nil {
		err = st.Wait(p.t.Context(), "tree:tavern", rev.Offset)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// files lists the files of the folder.
func (p parted) files() (list []string) {
	p.t.Helper()
	err := filepath.WalkDir(p.folder, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !layouts.IsTemporary(d.Name()) {
			below, _ := filepath.Rel(p.folder, name)
			list = append(list, filepath.ToSlash(below))
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

func (p parted) has(want ...string) {
	p.t.Helper()
	if got := p.files(); !slices.Equal(got, want) {
		p.t.Errorf("got files %q, want %q", got, want)
	}
}

func TestTreePart(t *testing.T) {
	p := newParted(t)
	st := p.opened("")
	p.save(st, "doc", "plan", "of all", "")
	p.save(st, "doc", "diary", "of one", "personal")
	p.save(st, "overlay", "o/x.go", "package x\n", "")
	t.Run("D-53 what is personal has no file", func(t *testing.T) { p.has("docs/plan", "overlays/o/x.go") })
	t.Run("D-53 what becomes personal has none any more, and what is the project's again has one", func(t *testing.T) {
		p.save(st, "doc", "plan", "of me", "personal")
		p.has("overlays/o/x.go")
		p.save(st, "doc", "plan", "of all", "project")
		p.has("docs/plan", "overlays/o/x.go")
	})
	t.Run("a file under the name of something personal is left alone, and so is that", func(t *testing.T) {
		name := filepath.Join(p.folder, "docs", "diary")
		if err := os.WriteFile(name, []byte("of somebody"), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := p.ask(keeper.VerbPull)
		if err != nil || said.Status.Conflicts > 0 || len(said.Status.Skipped) != 1 || said.Status.Skipped[0].File != "docs/diary" {
			t.Errorf("got %+v, %v", said, err)
		}
		if doc, err := st.Documents().Read(t.Context(), "doc", "diary"); err != nil || string(doc.Data) != "of one" {
			t.Errorf("got %q, %v", doc.Data, err)
		}
		p.has("docs/diary", "docs/plan", "overlays/o/x.go")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	})
	st.Close()

	t.Run("another part is shown when the file says so", func(t *testing.T) {
		for _, step := range []struct {
			more string
			want []string
		}{
			{"layer = \"all\"\n", []string{"docs/diary", "docs/plan", "overlays/o/x.go"}},
			{"layer = \"project\"\n", []string{"docs/plan", "overlays/o/x.go"}},
			{"kinds = [\"overlay\", \"agent\"]\n", []string{"overlays/o/x.go"}},
			{"kinds = [\"doc\"]\nlayer = \"all\"\n", []string{"docs/diary", "docs/plan"}},
		} {
			st := p.opened(step.more)
			p.until("it shows "+step.more, func() bool { return slices.Equal(p.files(), step.want) })
			if said, err := p.ask(keeper.VerbConflicts); err != nil || len(said.Conflicts) > 0 {
				t.Errorf("%s: got %+v, %v", step.more, said, err)
			}
			st.Close()
		}
	})
	t.Run("what somebody wrote to a file that goes is kept", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(p.folder, "docs", "plan"), []byte("of somebody"), 0o600); err != nil {
			t.Fatal(err)
		}
		st := p.opened("kinds = [\"overlay\"]\n")
		p.until("what goes is gone", func() bool {
			return slices.Contains(p.files(), "overlays/o/x.go") && !slices.Contains(p.files(), "docs/plan")
		})
		doc, err := st.Documents().Read(t.Context(), "doc", "plan")
		said, wrong := p.ask(keeper.VerbConflicts)
		if err != nil || wrong != nil || string(doc.Data) != "of somebody" && len(said.Conflicts) != 1 {
			t.Errorf("got %q, %+v, %v, %v", doc.Data, said, err, wrong)
		}
		st.Close()
	})
	t.Run("what there is no such part of is refused, by its place", func(t *testing.T) {
		for more, field := range map[string]string{"layer = \"personal\"\n": "tree.layer", "layer = \"mine\"\n": "tree.layer", "kinds = [\"doc\", \"conversation\"]\n": "tree.kinds"} {
			p.own("[[tree]]\nlayout = \"tavern\"\ndir = \"" + p.folder + "\"\n" + more)
			_, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: p.project, Store: p.dir, Trees: func(string) (layouts.Layout, bool) { return taverndir.Layout{}, true }})
			if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.Field != field || wrong.Line != 1 {
				t.Errorf("%s: got %v", more, err)
			}
		}
		p.own("")
		p.says("layer = \"project\"\n")
		_, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: p.project, Store: p.dir, Trees: notesOf})
		if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.Field != "tree.layer" {
			t.Errorf("a layout without layers: got %v", err)
		}
	})
}

func TestTreePartOfAgents(t *testing.T) {
	p := newParted(t)
	st := p.opened("")
	t.Run("D-53 nor has what an agent is sent that becomes personal", func(t *testing.T) {
		agent, err := tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{Name: "Kettle"})
		if err != nil {
			t.Fatal(err)
		}
		send := func(id string) {
			t.Helper()
			_, err := tavern.InboxOf(st, agent.ID()).Send(t.Context(), tavern.Message{ID: id, From: "user", Type: "note", Thread: "t", Body: tavern.Text("x")})
			if err == nil {
				err = st.Wait(t.Context(), "tree:tavern", 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"m1", "m2", "m3"} { // the third is added to an existing folder
			send(id)
		}
		letters := func() int {
			return len(slices.DeleteFunc(p.files(), func(name string) bool { return !strings.HasPrefix(name, "inbox/") }))
		}
		if n := letters(); n != 3 {
			t.Errorf("got %d letters: %q", n, p.files())
		}
		o, err := st.Loader().Peek(t.Context(), st.Session("agent/"+agent.ID()).Subject())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Session("agent/"+agent.ID()).Append(t.Context(), log.At(o.Offset()), &events.SessionUpdated{Set: events.Fields{{Name: "layer", Value: events.Raw(`"personal"`)}}}); err != nil {
			t.Fatal(err)
		}
		send("m4")
		if n := letters(); n != 0 {
			t.Errorf("got %d letters: %q", n, p.files())
		}
	})
}
