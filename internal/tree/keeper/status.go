package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/tree"
)

// Status describes a tree.
type Status struct {
	Name      string            `json:"tree"`
	Place     string            `json:"place"`
	Layout    string            `json:"layout"`
	Namespace string            `json:"namespace"`
	Sync      bool              `json:"sync"`
	Way       string            `json:"way"`
	PID       int               `json:"pid,omitempty"` // process that keeps the tree; 0: none
	Shown     events.Offset     `json:"offset"`
	Units     int               `json:"units"` // sessions and documents
	Files     int               `json:"files"`
	Conflicts int               `json:"conflicts"`
	Skipped   []layouts.Problem `json:"skipped,omitempty"`
	Stuck     []layouts.Problem `json:"stuck,omitempty"`   // files that could not be written
	LeftOut   []tree.LeftOut    `json:"leftOut,omitempty"` // sessions that the layout has no files for
	Asking    string            `json:"asking,omitempty"`  // the question about a mass change
	Watching  string            `json:"watching,omitempty"`
	Error     string            `json:"error,omitempty"` // why edits are not imported
}

func statusOf(t config.Tree) Status {
	return Status{Name: t.Name, Place: strings.ReplaceAll(t.Location(), "\n", " "), Layout: t.Layout, Namespace: t.Namespace, Sync: t.Sync, Way: t.Way}
}

// recall adds the problems that the last keeper left and this one has not looked for yet: a process may end soon after it
// has opened a tree. It leaves out files that the tree has written meanwhile.
func (s *Status) recall(left Status, now tree.Status, shows func(file string) bool) {
	if !now.Examined {
		s.Skipped, s.Asking = union(s.Skipped, left.Skipped), cmp.Or(s.Asking, left.Asking)
	}
	if !now.Examined || now.Untried > 0 {
		s.Stuck = union(s.Stuck, slices.DeleteFunc(slices.Clone(left.Stuck), func(p layouts.Problem) bool { return shows(p.File) }))
	}
}

// union adds the problems of files that a list does not name.
func union(list, more []layouts.Problem) []layouts.Problem {
	for _, p := range more {
		if !slices.ContainsFunc(list, func(have layouts.Problem) bool { return have.File == p.File }) {
			list = append(list, p)
		}
	}
	return list
}

// status returns the tree's current status.
func (k *keptTree) status(ctx context.Context) Status {
	s, now := statusOf(k.Tree), k.tree.Status()
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
	s.recall(k.left, now, k.tree.Shows)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		s.Error = k.failed.Error()
	}
	return s
}

const stateVersion = 2 // of the format of these files

// leftTree stores the status of a tree when its last keeper stopped.
type leftTree struct {
	Version int    `json:"version"`
	Tree    Status `json:"tree"`
}

// namedTree stores the settings of a tree that an attached process named.
type namedTree struct {
	Version int         `json:"version"`
	Tree    config.Tree `json:"tree"`
}

// makeFolder creates the store's folder for its trees. A store in memory has none, and dir is "".
func makeFolder(dir string) error {
	if dir == "" {
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

func writeLeft(dir, name string, s Status) error {
	if dir == "" {
		return nil
	}
	return statefile.Write(filepath.Join(dir, name+".json"), leftTree{stateVersion, s}, durable.NoSync)
}

// readLeft returns the status that a tree's last keeper left.
func readLeft(dir string, t config.Tree) Status {
	var f leftTree
	if dir == "" || statefile.Read(filepath.Join(dir, t.FileName()+".json"), stateVersion, &f) != nil {
		return statusOf(t)
	}
	return f.Tree
}

func writeNamed(dir string, t config.Tree) error {
	if err := makeFolder(dir); err != nil {
		return err
	}
	return statefile.Write(filepath.Join(dir, t.FileName()+namedSuffix), namedTree{stateVersion, t}, durable.NoSync)
}

// makeKey creates a file with a random text, unless the file exists.
func makeKey(path string) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return durable.Replace(path, []byte(rand.Text()), 0o600, durable.NoSync)
}

const namedSuffix = ".named.json"

// readNamed returns the settings of a tree that an attached process wrote with writeNamed. If there are none, the error
// matches tally.ErrNotFound.
func readNamed(dir, name string) (t config.Tree, err error) {
	if dir == "" || name == "" || name != filepath.Base(name) {
		return t, fmt.Errorf("tree %q: %w", name, tally.ErrNotFound)
	}
	var f namedTree
	err = statefile.Read(filepath.Join(dir, name+namedSuffix), stateVersion, &f)
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
