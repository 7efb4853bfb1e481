package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/layouts/bucket"
	"github.com/tallylog/tally/internal/layouts/redis"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

func TestTreeSync(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	owner := n.keeps()
	attached := n.keeps()
	reader := n.open(embedded.Options{}) // keeps no trees, and waits for them
	t.Run("D-02 in mode sync the file shows what was acknowledged, whoever keeps the tree", func(t *testing.T) {
		for round := range 20 {
			for name, st := range map[string]*tally.Store{"owner": owner, "attached": attached, "reader": reader} {
				text := fmt.Sprint(round)
				if err := n.put(st, name, text); err != nil {
					t.Fatal(err)
				}
				n.shows(name, text)
			}
		}
	})
	t.Run("what cannot be shown is stored, and said", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(n.folder, "blocked"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, st := range map[string]*tally.Store{"owner": owner, "attached": attached, "reader": reader} {
			rev, err := st.Documents().Save(t.Context(), "note", "blocked", tally.Write{Data: []byte(name)})
			told, ok := errors.AsType[*events.TreeError](err)
			if !ok || told.Tree != "notes" || told.Path != "blocked" || told.Err == nil || rev.Offset == 0 {
				t.Errorf("%s: got %+v, %v", name, rev, err)
			}
			if doc, err := st.Documents().Read(t.Context(), "note", "blocked"); err != nil || string(doc.Data) != name {
				t.Errorf("%s: got %v, %v", name, doc, err)
			}
			if err := n.put(st, "free", name); err != nil {
				t.Errorf("%s: another file: got %v", name, err)
			}
		}
		if err := os.Remove(filepath.Join(n.folder, "blocked")); err != nil {
			t.Fatal(err)
		}
		if err := n.put(attached, "blocked", "at last"); err != nil {
			t.Error(err)
		}
		n.shows("blocked", "at last")
	})
	t.Run("what another namespace has is waited for by nobody", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(n.folder, "elsewhere"), 0o700); err != nil {
			t.Fatal(err)
		}
		other, err := attached.In("other")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.put(other, "elsewhere", "x"); err != nil {
			t.Error(err)
		}
	})
	if said, err := n.ask(keeper.VerbState); err != nil || said.Status.PID != os.Getpid() || said.Status.Files != 5 || !said.Status.Sync {
		t.Errorf("got %+v, %v", said.Status, err)
	}
}

func TestTreeAsync(t *testing.T) {
	n := newNoted(t, "")
	owner := n.keeps()
	t.Run("D-02 in mode async the file shows what was acknowledged, after Wait", func(t *testing.T) {
		for i, st := range []*tally.Store{owner, n.open(embedded.Options{})} {
			rev, err := st.Documents().Save(t.Context(), "note", "a", tally.Write{Data: []byte{byte('a' + i)}})
			if err == nil {
				err = st.Wait(t.Context(), "tree:notes", rev.Offset)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.shows("a", string(rune('a'+i)))
		}
		if err := owner.Wait(t.Context(), "tree:other", 0); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("an unknown tree: got %v", err)
		}
	})
	t.Run("a process that ends leaves the files as the log is", func(t *testing.T) {
		if err := n.put(owner, "a", "last"); err != nil {
			t.Fatal(err)
		}
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
		n.shows("a", "last")
		said, err := n.ask(keeper.VerbState)
		if !errors.Is(err, log.ErrUnavailable) || said.Status.Files != 1 || said.Status.PID != 0 {
			t.Errorf("got %+v, %v", said.Status, err)
		}
	})
	t.Run("what somebody wrote meanwhile is taken in by the next one, and by whoever asks for it", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(n.folder, "a"), []byte("edited"), 0o600); err != nil {
			t.Fatal(err)
		}
		st := n.keeps()
		if err := st.Wait(t.Context(), "tree:notes", 0); err != nil {
			t.Fatal(err)
		}
		if said, err := n.ask(keeper.VerbPull); err != nil || said.Status.Conflicts != 0 {
			t.Fatal(said, err)
		}
		doc, err := st.Documents().Read(t.Context(), "note", "a")
		if err != nil || string(doc.Data) != "edited" {
			t.Errorf("got %v, %v", doc, err)
		}
	})
}

// A mass change blocks no append, also in mode sync. Its report appears at once, and stays until somebody decides.
func TestTreeAsks(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\nbulk_limit = 3\n")
	owner := n.keeps()
	attached := n.open(embedded.Options{})
	for i := range 20 {
		if err := n.put(owner, fmt.Sprint(i), "text"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if err := os.Remove(filepath.Join(n.folder, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	n.until("it asks", func() bool {
		said, err := n.ask(keeper.VerbState)
		return err == nil && said.Status.Asking != ""
	})
	for name, st := range map[string]*tally.Store{"owner": owner, "attached": attached} {
		if _, ok := errors.AsType[*events.TreeError](n.put(st, "new", name)); !ok {
			t.Errorf("%s: got no report of the mass change", name)
		}
	}
	if _, err := n.ask(keeper.VerbPull); err == nil {
		t.Error("a mass change was pulled without a decision")
	}
	if said, err := n.ask(keeper.VerbRestore); err != nil || said.Status.Asking != "" {
		t.Fatal(said.Status, err)
	}
	n.shows("7", "text")
	if err := n.put(attached, "new", "after"); err != nil {
		t.Error(err)
	}
	n.shows("new", "after")
	if said, err := n.ask(keeper.VerbVerify); err != nil || len(said.Problems) > 0 {
		t.Error(said.Problems, err)
	}
	if said, err := n.ask(keeper.VerbRebuild); err != nil || said.Status.Files != 21 || said.Status.Conflicts != 0 {
		t.Error(said.Status, err)
	}
}

// A slow answer arrives nevertheless, because the keeper reports meanwhile that it is at work.
func TestTreeSlow(t *testing.T) {
	embedded.SetTreeBeat(t, time.Millisecond)
	n := newNoted(t, "")
	owner := n.keeps()
	attached := n.open(embedded.Options{})
	head, err := owner.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- attached.Wait(ctx, "tree:notes", head+1) }()
	time.Sleep(100 * time.Millisecond) // many beats
	if err := errors.Join(n.put(owner, "a", "text"), <-waited); err != nil {
		t.Fatal(err)
	}
	n.shows("a", "text")
}

// Only the owner of a store keeps its trees: those of its configuration, and those that a process in another project
// names.
func TestTreeKeepers(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	elsewhere := n
	elsewhere.project = t.TempDir() // its configuration names no tree
	bare := elsewhere.open(embedded.Options{})
	attached := n.keeps()
	t.Run("an owner without layouts keeps none, and nobody waits", func(t *testing.T) {
		if err := n.put(attached, "a", "one"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(n.folder); err == nil {
			t.Error("got a kept tree, want none")
		}
		if err := attached.KeepFiles(t.Context(), "notes", n.folder); !errors.Is(err, tally.ErrNoTrees) {
			t.Errorf("naming a folder: got %v", err)
		}
		if _, err := n.ask(keeper.VerbPull); !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("a question about the tree: got %v", err)
		}
	})
	if err := errors.Join(attached.Close(), bare.Close()); err != nil {
		t.Fatal(err)
	}
	owner := elsewhere.open(embedded.Options{Trees: notesOf})
	if _, err := n.ask(keeper.VerbPull); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("a tree of no store: got %v", err)
	}
	t.Run("D-02 a tree of another project is kept from when a process of that attaches", func(t *testing.T) {
		attached := n.keeps()
		for name, st := range map[string]*tally.Store{"owner": owner, "attached": attached, "reader": n.open(embedded.Options{})} {
			if err := n.put(st, name, "text"); err != nil {
				t.Fatal(err)
			}
			n.shows(name, "text")
		}
		n.shows("a", "one")
		if err := errors.Join(attached.Close(), n.put(owner, "a", "two")); err != nil {
			t.Fatal(err)
		}
		n.shows("a", "two")
	})
	t.Run("a tree that the owner cannot keep is refused with the reason", func(t *testing.T) {
		within := n
		within.project, within.folder = filepath.Join(n.folder, "sub"), filepath.Join(n.folder, "sub", "notes")
		if err := os.MkdirAll(within.project, 0o700); err != nil {
			t.Fatal(err)
		}
		within.says("")
		_ = within.keeps()
		c := within.config(n.dir)
		if _, err := keeper.Ask(t.Context(), c, c.Trees[0], keeper.VerbKeep, keeper.Question{}); err == nil || !strings.Contains(err.Error(), "one in the other") {
			t.Errorf("a tree in a tree: got %v", err)
		}
	})
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("an owner that only reads keeps a tree as soon as somebody appends", func(t *testing.T) {
		reading := n.open(embedded.Options{Trees: notesOf, Existing: true})
		if _, err := n.ask(keeper.VerbState); !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("the tree is not kept: %v", err)
		}
		if err := n.put(n.open(embedded.Options{}), "a", "three"); err != nil {
			t.Fatal(err)
		}
		n.shows("a", "three")
		if said, err := n.ask(keeper.VerbState); err != nil || said.Status.PID != os.Getpid() {
			t.Errorf("got %+v, %v", said.Status, err)
		}
		if err := reading.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A folder shows one store as long as the store exists, also while no process has it open.
func TestTreeOfTwoStores(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	first := n.keeps()
	if err := n.put(first, "a", "first"); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(n.dir), "other")
	refused := func(why string) {
		t.Helper()
		second := n.open(embedded.Options{Store: other, Trees: notesOf})
		defer second.Close()
		err := n.put(second, "a", "second")
		held, ok := errors.AsType[*keeper.HeldError](err)
		if _, told := errors.AsType[*events.TreeError](err); !told || !ok || held.Store != n.dir || held.Place != n.folder {
			t.Fatalf("%s: got %v", why, err)
		}
		n.shows("a", "first")
		if _, err := os.Stat(held.File); err != nil {
			t.Error(err)
		}
		c := n.config(other)
		if said, _ := keeper.Ask(t.Context(), c, c.Trees[0], keeper.VerbState, keeper.Question{}); said.Status.Error != held.Error() {
			t.Errorf("%s: got status error %q", why, said.Status.Error)
		}
	}
	refused("both have it open")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	refused("the first one is closed")
	if err := errors.Join(os.Rename(n.dir, n.dir+".away"), os.Symlink(n.dir, n.dir)); err != nil {
		t.Fatal(err)
	}
	refused("the first one cannot be reached")
	if err := errors.Join(os.Remove(n.dir), os.Rename(n.dir+".away", n.dir)); err != nil {
		t.Fatal(err)
	}
	memory := n.open(embedded.Options{Backend: config.Memory, Trees: notesOf})
	if _, held := errors.AsType[*keeper.HeldError](n.put(memory, "a", "memory")); !held {
		t.Error("a store in memory wrote to the folder")
	}
	second := n.open(embedded.Options{Store: other, Trees: notesOf})
	if _, held := errors.AsType[*keeper.HeldError](n.put(second, "a", "second")); !held {
		t.Error("the second store wrote to the folder")
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Fatal(err)
	}
	if err := n.put(second, "b", "second"); err != nil { // a tree that could not be opened is opened as soon as it can be
		t.Error(err)
	}
	n.shows("b", "second")
}

func TestTreeInMemory(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	st := n.open(embedded.Options{Backend: config.Memory, Trees: notesOf})
	if err := n.put(st, "a", "text"); err != nil {
		t.Fatal(err)
	}
	n.shows("a", "text")
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

// A tree is where the user's own configuration says, on servers as well as in a directory.
func TestTreeOnServers(t *testing.T) {
	n := newNoted(t, "")
	redisServer := testkit.Redis(t)
	natsServer := mustServe(t, "}")
	text := "[[tree]]\nname = \"r\"\nlayout = \"notes\"\ntarget = \"redis\"\nredis = {url = \"" + redisServer.URL + "\", key_prefix = \"n:\"}\n" +
		"[[tree]]\nname = \"b\"\nlayout = \"notes\"\ntarget = \"bucket\"\nbucket = {url = \"" + natsServer.ClientURL() + "\", name = \"notes\"}\n"
	own := filepath.Join(filepath.Dir(n.project), "config", "tally", "config.toml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o700), os.WriteFile(own, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	st := n.keeps()
	rev, err := st.Documents().Save(t.Context(), "note", "a", tally.Write{Data: []byte("text")})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"r", "b", "notes"} {
		if err := st.Wait(t.Context(), "tree:"+name, rev.Offset); err != nil {
			t.Fatal(err)
		}
	}
	n.shows("a", "text")
	r, err := redis.Open(t.Context(), redis.Config{URL: redisServer.URL, Prefix: "n:"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	nc, err := nats.Connect(natsServer.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bucket.Open(t.Context(), js, "notes")
	if err != nil {
		t.Fatal(err)
	}
	for name, storage := range map[string]layouts.Storage{"redis": r, "bucket": b} {
		f, err := storage.Read(t.Context(), "a")
		if err != nil {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
		f.Close()
	}
}

// If a layout cannot follow the log, opening the store is refused and names the layout.
func TestTreeOfUnknownLayout(t *testing.T) {
	n := newNoted(t, "")
	_, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: n.project, Store: n.dir, Trees: func(string) (layouts.Layout, bool) { return nil, false }})
	if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.Line != 1 || wrong.Field != "tree.layout" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(n.dir); err == nil {
		t.Error("a store was created")
	}
}

// Naming a folder while others wait for trees changes no list that they read: this test is for the race detector.
func TestTreeNamedMeanwhile(t *testing.T) {
	n := newNoted(t, "")
	st := n.keeps()
	named := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for done := false; !done; {
			select {
			case <-named:
				done = true // once more
			default:
			}
			if err := st.Wait(t.Context(), "tree:none", 0); !errors.Is(err, tally.ErrNotFound) {
				t.Error(err)
			}
		}
	})
	if err := st.KeepFiles(t.Context(), "notes", filepath.Join(n.project, "others")); err != nil {
		t.Error(err)
	}
	close(named)
	waiting.Wait()
}

func TestTreeTravels(t *testing.T) {
	n := newNoted(t, "")
	if err := os.WriteFile(filepath.Join(n.project, config.FileName), []byte("[[tree]]\nlayout = \"tavern\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tavernOf := func(string) (layouts.Layout, bool) { return taverndir.Layout{}, true }
	here := n.open(embedded.Options{Trees: tavernOf, Kinds: tavern.Kinds()})
	agent, err := tavern.NewAgent(t.Context(), here, tavern.NewAgentOptions{Name: "Kettle", Assignment: "Boil water.\n"})
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{"plan": "a plan\r\n", "specs/store": "no newline at the end", "bytes": "\xff\x00"}
	for id, text := range kept {
		if _, err := here.Documents().Create(t.Context(), "doc", id, tally.Write{Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	own, err := here.In(events.PersonalNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Documents().Create(t.Context(), "doc", "diary", tally.Write{Data: []byte("geheim")}); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Documents().Create(t.Context(), "doc", "diary", tally.Write{Data: []byte("geheim"), Layer: "personal"}); err != nil {
		t.Fatal(err)
	}
	if _, err := tavern.NewAgent(t.Context(), here, tavern.NewAgentOptions{Name: "diary", Assignment: "geheim\n", Layer: "personal"}); err != nil {
		t.Fatal(err)
	}
	file, err := here.Documents().Read(t.Context(), "agent", agent.ID())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("D-53 a clone of the folder, on another machine, has the agents and documents, and nothing personal", func(t *testing.T) {
		clone := newNoted(t, "")
		text, err := os.ReadFile(filepath.Join(n.project, config.FileName))
		if err == nil {
			err = os.WriteFile(filepath.Join(clone.project, config.FileName), text, 0o600)
		}
		if err == nil {
			err = os.CopyFS(filepath.Join(clone.project, ".tavern"), os.DirFS(filepath.Join(n.project, ".tavern")))
		}
		if err != nil {
			t.Fatal(err)
		}
		there := clone.open(embedded.Options{Trees: tavernOf, Kinds: tavern.Kinds()})
		if err := there.Wait(t.Context(), "tree:tavern", 0); err != nil {
			t.Fatal(err)
		}
		if said, err := clone.ask(keeper.VerbPull); err != nil || said.Status.Conflicts > 0 {
			t.Fatal(said, err)
		}
		for id, text := range kept {
			if doc, err := there.Documents().Read(t.Context(), "doc", id); err != nil || string(doc.Data) != text {
				t.Errorf("%s: got %v, %v", id, doc, err)
			}
		}
		if same, err := there.Documents().Read(t.Context(), "agent", agent.ID()); err != nil || string(same.Data) != string(file.Data) {
			t.Errorf("the agent: got %v, %v", same, err)
		}
		_ = filepath.WalkDir(filepath.Join(n.project, ".tavern"), func(path string, d os.DirEntry, err error) error {
			if text, _ := os.ReadFile(path); strings.Contains(path+string(text), "geheim") || strings.Contains(path, "diary") {
				t.Errorf("%s is personal and has a file", path)
			}
			return err
		})
	})
}
