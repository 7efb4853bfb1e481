package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/internal/formats"
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
	Skipped   []formats.Problem `json:"skipped,omitempty"`
	Stuck     []formats.Problem `json:"stuck,omitempty"`   // that could not be written
	LeftOut   []tree.LeftOut    `json:"leftOut,omitempty"` // sessions that the layout has no files for
	Asking    string            `json:"asking,omitempty"`  // about a mass change
	Watching  string            `json:"watching,omitempty"`
	Error     string            `json:"error,omitempty"` // why nothing is taken in
}

func statusOfTree(t config.Tree) TreeStatus {
	return TreeStatus{Name: t.Name, Place: strings.ReplaceAll(t.Place(), "\n", " "), Layout: t.Layout, Namespace: t.Namespace, Sync: t.Sync, Way: t.Way}
}

// status says how the tree is now.
func (k *treeKept) status(ctx context.Context) TreeStatus {
	s, now := statusOfTree(k.Tree), k.tree.Status()
	s.LeftOut = now.LeftOut
	s.PID, s.Shown, s.Units, s.Files, s.Skipped, s.Watching = os.Getpid(), now.Shown, now.Units, now.Files, now.Skipped, now.Watching
	if list, err := k.tree.Conflicts(ctx); err == nil {
		s.Conflicts = len(list)
	} else {
		s.Error = err.Error()
	}
	for _, e := range now.Stuck {
		s.Stuck = append(s.Stuck, formats.Problem{File: e.Path, Reason: e.Err.Error()})
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

const treeVersion = 1 // of the format of these files

// treeFile says who keeps a tree, and how to ask there, or how the tree was when it was last
// kept.
type treeFile struct {
	Version int        `json:"version"`
	PID     int        `json:"pid,omitempty"`
	URL     string     `json:"url,omitempty"`
	Token   string     `json:"token,omitempty"`
	Tree    TreeStatus `json:"tree"`

	name string
}

// say writes the file of the tree: that it is kept at a desk, or, without one, how it was left.
func (k *treeKept) say(desk *treeDesk, s TreeStatus) error {
	f := treeFile{Version: treeVersion, Tree: s}
	if desk != nil {
		f.PID, f.URL, f.Token = os.Getpid(), desk.url, desk.token
	}
	return statefile.Write(filepath.Join(k.dir, k.FileName()+".json"), f, durable.NoSync)
}

// treeFiles returns what processes said of the trees of a store, by its directory of trees.
func treeFiles(dir string) (list []treeFile) {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there are none
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".json")
		if !is {
			continue
		}
		if f, err := treeFileIn(dir, name); err == nil {
			list = append(list, f)
		}
	}
	return list
}

func treeFileIn(dir, name string) (f treeFile, err error) {
	err = statefile.Read(filepath.Join(dir, name+".json"), treeVersion, &f)
	if newer, is := errors.AsType[*statefile.NewerError](err); is {
		err = fmt.Errorf("%w: %w", newer, fs.ErrNotExist)
	}
	f.name = name
	return f, err
}
