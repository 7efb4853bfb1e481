package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/tree/keeper"
)

// A program can name the folder of a tree itself.
func TestKeepFiles(t *testing.T) {
	n := newNoted(t, "")
	if err := os.Remove(filepath.Join(n.project, config.FileName)); err != nil {
		t.Fatal(err)
	}
	ctx, owner, attached := t.Context(), n.keeps(), n.keeps()
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} { // a tree asks about so many files without a known session
		if err := os.WriteFile(filepath.Join(n.folder, id), []byte("was there "+id), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, st := range []*tally.Store{owner, attached, owner} {
		if err := st.KeepFiles(ctx, "notes", n.folder); err != nil {
			t.Fatal(err)
		}
		if doc, err := st.Documents().Read(ctx, "note", "l"); err != nil || string(doc.Data) != "was there l" {
			t.Errorf("got %v, %v", doc, err)
		}
	}
	reader := n.open(embedded.Options{}) // keeps no trees, and waits for them
	for name, st := range map[string]*tally.Store{"owner": owner, "attached": attached, "reader": reader} {
		if err := n.put(st, "a", name); err != nil {
			t.Error(err)
		}
		n.shows("a", name)
	}
	if err := os.WriteFile(filepath.Join(n.folder, "b"), []byte("by hand"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := attached.KeepFiles(ctx, "notes", n.folder); err != nil {
		t.Error(err)
	}
	if doc, err := reader.Documents().Read(ctx, "note", "b"); err != nil || string(doc.Data) != "by hand" {
		t.Errorf("got %v, %v", doc, err)
	}
	for what, dir := range map[string]string{"in the store": filepath.Join(n.dir, "x"), "around the store": filepath.Dir(n.dir), "in the tree": filepath.Join(n.folder, "x")} {
		err := owner.KeepFiles(ctx, "notes", dir)
		if _, wrong := errors.AsType[*config.Error](err); !wrong {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := n.open(embedded.Options{Trees: notesOf, Store: filepath.Join(filepath.Dir(n.dir), "other")})
	err := other.KeepFiles(ctx, "notes", n.folder)
	if _, held := errors.AsType[*keeper.HeldError](err); !held {
		t.Errorf("the folder of another store: got %v", err)
	}
	if err := n.put(other, "a", "x"); err != nil {
		t.Errorf("an append without a keeper: %v", err)
	}
	if err := reader.KeepFiles(ctx, "notes", n.folder); !errors.Is(err, tally.ErrNoTrees) {
		t.Errorf("got %v", err)
	}
}
