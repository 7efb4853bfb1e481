package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
)

// notes is a layout with a file for each document of kind note, named by its id, and a file ID.turns for each session,
// with its messages.
type notes struct{ layouts.Layout }

func notesOf(name string) (layouts.Layout, bool) { return notes{}, name == "notes" }

func (notes) Name() string { return "notes" }

func (notes) Entry(_ context.Context, _ layouts.Source, _ layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	return sub, sub.Kind == "note" || sub.IsSession(), nil
}

func (notes) EntryAt(_ context.Context, src layouts.Source, _ layouts.Root, path string) (events.Subject, bool, error) {
	return events.Document(src.Namespace(), "note", path), true, nil
}

func (notes) Location(ctx context.Context, src layouts.Source, _ layouts.Root, unit events.Subject) (layouts.Location, error) {
	if unit.IsSession() {
		return layouts.Location{Path: unit.ID + ".turns"}, nil
	}
	_, err := src.Loader().Document(ctx, unit, 0)
	return layouts.Location{Path: unit.ID}, err
}

func (notes) EntryFiles(ctx context.Context, src layouts.Source, _ layouts.Root, unit events.Subject, at string) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		if unit.IsSession() {
			yield(layouts.File{Path: at, Write: func(w io.Writer) error { return writeTurns(ctx, w, src, unit) }}, nil)
			return
		}
		doc, err := src.Loader().Document(ctx, unit, 0)
		if err != nil {
			yield(layouts.File{Path: at}, err)
			return
		}
		yield(layouts.File{Path: at, Write: func(w io.Writer) error { _, err := w.Write(doc.Data); return err }}, nil)
	}
}

// writeTurns writes the messages of a session, a line for each turn.
func writeTurns(ctx context.Context, w io.Writer, src layouts.Source, unit events.Subject) error {
	s, err := src.Loader().Session(ctx, unit, 0)
	if err != nil {
		return err
	}
	main := s.Threads[events.MainThread]
	if main == nil { // no turn yet
		return nil
	}
	for _, t := range main.Turns {
		var said struct{ Message struct{ Content string } }
		if err := json.Unmarshal(t.Raw, &said); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, said.Message.Content); err != nil {
			return err
		}
	}
	return nil
}

func (notes) Removal(context.Context, layouts.Source, events.Subject) ([]log.Part, error) {
	return nil, nil // the tree writes the file again
}

func (notes) ImportFrom(ctx context.Context, target layouts.Target, st layouts.Storage, _ layouts.Root, _ layouts.ImportOptions) (r layouts.Report, err error) {
	list, err := st.List(ctx, "")
	for _, f := range list {
		if err == nil {
			err = importNote(ctx, target, st, f.Name)
		}
	}
	return r, err
}

func importNote(ctx context.Context, target layouts.Target, st layouts.Storage, name string) error {
	r, err := st.Read(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	sub, at := events.Document(target.Namespace(), "note", name), events.Offset(0)
	if doc, err := target.Loader().Document(ctx, sub, 0); err == nil {
		if at = doc.Head; string(doc.Data) == string(text) {
			return nil
		}
	}
	_, err = target.Append(ctx, sub, log.At(at), events.Event{ID: events.DerivedID(name, at.String(), string(text)), Source: "urn:notes", Type: events.TypeDocumentWritten,
		Subject: sub, ContentType: events.ContentTypeRaw, Data: text})
	return err
}

// noted is a project with a tree of notes, and a store.
type noted struct {
	t                    *testing.T
	project, dir, folder string
}

// newNoted creates a project; more is added to the tree's settings in the project's file. State is in a folder of the
// test.
func newNoted(t *testing.T, more string) noted {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	t.Setenv("XDG_STATE_HOME", filepath.Join(base, "state"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(base, "config"))
	n := noted{t, filepath.Join(base, "project"), filepath.Join(base, "store"), filepath.Join(base, "project", "notes")}
	if err := os.MkdirAll(n.project, 0o700); err != nil {
		t.Fatal(err)
	}
	n.says(more)
	return n
}

func (n noted) says(more string) {
	text := "[[tree]]\nname = \"notes\"\nlayout = \"notes\"\ndir = \"notes\"\n" + more
	if err := os.WriteFile(filepath.Join(n.project, config.FileName), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// open opens the store as one more process would: as the owner, or attached.
func (n noted) open(o embedded.Options) *tally.Store {
	n.t.Helper()
	o.ConfigDir = n.project
	if o.Store == "" && o.Backend == "" {
		o.Store = n.dir
	}
	st, err := embedded.Open(n.t.Context(), o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { st.Close() })
	return st
}

// keeps opens the store and keeps its trees.
func (n noted) keeps() *tally.Store { return n.open(embedded.Options{Trees: notesOf}) }

func (n noted) put(st *tally.Store, id, text string) error {
	_, err := st.Documents().Save(n.t.Context(), "note", id, tally.Write{Data: []byte(text)})
	return err
}

// shows fails unless a file has a text at this moment.
func (n noted) shows(id, want string) {
	n.t.Helper()
	if got, err := os.ReadFile(filepath.Join(n.folder, id)); err != nil || string(got) != want {
		n.t.Errorf("file %s: got %q, %v, want %q", id, got, err, want)
	}
}

// config returns the configuration of a process in the project, with another store if one is named.
func (n noted) config(store string) config.Config {
	n.t.Helper()
	c, err := config.Resolve(n.project, config.Overrides{Store: store}, os.Getenv)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n noted) ask(verb string) (keeper.Answer, error) {
	n.t.Helper()
	c := n.config(n.dir)
	return keeper.Ask(n.t.Context(), c, c.Trees[0], verb, keeper.Question{})
}

// until waits until so returns true.
func (n noted) until(what string, so func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("timeout: wait until %s", what)
		}
	}
}
