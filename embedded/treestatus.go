package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/tree"
)

// TreeStatus is what is known of a tree.
type TreeStatus struct {
	Name      string            `json:"tree"`
	Place     string            `json:"place"`
	Layout    string            `json:"layout"`
	Namespace string            `json:"namespace"`
	Sync      bool              `json:"sync"`
	Way       string            `json:"way"`
	PID       int               `json:"pid,omitempty"` // that keeps it; 0: none
	Shown     events.Offset     `json:"offset"`
	Units     int               `json:"units"` // sessions and documents
	Files     int               `json:"files"`
	Conflicts int               `json:"conflicts"`
	Skipped   []layouts.Problem `json:"skipped,omitempty"`
	Stuck     []layouts.Problem `json:"stuck,omitempty"`   // that could not be written
	LeftOut   []tree.LeftOut    `json:"leftOut,omitempty"` // sessions that the layout has no files for
	Asking    string            `json:"asking,omitempty"`  // about a mass change
	Watching  string            `json:"watching,omitempty"`
	Error     string            `json:"error,omitempty"` // why nothing is taken in
}

func statusOfTree(t config.Tree) TreeStatus {
	return TreeStatus{Name: t.Name, Place: strings.ReplaceAll(t.Location(), "\n", " "), Layout: t.Layout, Namespace: t.Namespace, Sync: t.Sync, Way: t.Way}
}

// status says how the tree is now.
func (k *treeKept) status(ctx context.Context) TreeStatus {
	s, now := statusOfTree(k.Tree), k.tree.Status()
	s.LeftOut = now.LeftOut
	s.PID, s.Shown, s.Units, s.Files, s.Skipped, s.Watching = os.Getpid(), now.Shown, now.Entries, now.Files, now.Skipped, now.Watching
	if list, err := k.tree.Conflicts(ctx); err == nil {
		s.Conflicts = len(list)
	} else {
		s.Error = err.Error()
	}
	for _, e := range now.Stuck {
		s.Stuck = append(s.Stuck, layouts.Problem{File: e.Path, Reason: e.Err.Error()})
	}
	if now.Asking != nil {
		s.Asking = now.Asking.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		s.Error = k.failed.Error()
	}
	return s
}

const treeVersion = 2 // of the format of these files

// leftTree says how a tree was when it was last kept.
type leftTree struct {
	Version int        `json:"version"`
	Tree    TreeStatus `json:"tree"`
}

// namedTree has the settings of a tree that another process than the owner named.
type namedTree struct {
	Version int         `json:"version"`
	Tree    config.Tree `json:"tree"`
}

// makeTrees makes the folder of a store for its trees, "" if the store has none.
func makeTrees(dir string) error {
	if dir == "" {
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

func writeLeft(dir, name string, s TreeStatus) error {
	if dir == "" {
		return nil
	}
	return statefile.Write(filepath.Join(dir, name+".json"), leftTree{treeVersion, s}, durable.NoSync)
}

// readLeft returns how a tree was left, by the directory of trees.
func readLeft(dir string, t config.Tree) TreeStatus {
	var f leftTree
	if dir == "" || statefile.Read(filepath.Join(dir, t.FileName()+".json"), treeVersion, &f) != nil {
		return statusOfTree(t)
	}
	return f.Tree
}

func writeNamed(dir string, t config.Tree) error {
	if err := makeTrees(dir); err != nil {
		return err
	}
	return statefile.Write(filepath.Join(dir, t.FileName()+namedSuffix), namedTree{treeVersion, t}, durable.NoSync)
}

// makeKey makes a file with a text that nobody guesses, unless the file is there.
func makeKey(path string) error {
	if err := makeTrees(filepath.Dir(path)); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return durable.Replace(path, []byte(rand.Text()), 0o600, durable.NoSync)
}

const namedSuffix = ".named.json"

// readNamed returns the tree in a folder whose settings a process wrote into the directory of trees.
func readNamed(dir, name string) (t config.Tree, err error) {
	if dir == "" || name == "" || name != filepath.Base(name) {
		return t, fmt.Errorf("tree %q: %w", name, tally.ErrNotFound)
	}
	var f namedTree
	err = statefile.Read(filepath.Join(dir, name+namedSuffix), treeVersion, &f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, fmt.Errorf("tree %q: %w", name, tally.ErrNotFound)
	case err != nil:
		return t, err
	case f.Tree.Target != config.TreeDir || f.Tree.FileName() != name:
		return t, fmt.Errorf("%s%s has the settings of another tree", name, namedSuffix)
	}
	return f.Tree, nil
}
