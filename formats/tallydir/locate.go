package tallydir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
)

// location says which folder a path means.
type location struct {
	root   string // absolute, the folder that holds conversations/
	name   string // of the root, as a user would call it
	single string // name of the one conversation that was asked for; "": all
	marker string // hash of the place
}

// locate finds the root for a path that a user gave.
func locate(path string) (location, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return location{}, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return location{}, err
	}
	if !info.IsDir() {
		return location{}, fmt.Errorf("tallydir: %s: is no folder: %w", path, formats.ErrUnknownLayout)
	}
	at := location{root: abs, name: filepath.Base(abs)}
	parent := filepath.Dir(abs)
	switch {
	case isDir(filepath.Join(abs, conversations)):
	case isDir(filepath.Join(abs, ".tally", conversations)):
		at.root = filepath.Join(abs, ".tally")
	case filepath.Base(abs) == conversations && looksLikeRoot(abs):
		at.root, at.name = parent, filepath.Base(parent)
	case filepath.Base(parent) == conversations && looksLikeConversation(abs):
		at.single, at.root = at.name, filepath.Dir(parent)
		at.name = filepath.Base(at.root)
	default:
		return location{}, fmt.Errorf("tallydir: %s: holds neither conversations/ nor a conversation: %w", path, formats.ErrUnknownLayout)
	}
	if !formats.IsFileName(at.name) || at.name == string(filepath.Separator) {
		at.name = "root"
	}
	real, err := filepath.EvalSymlinks(at.root)
	if err != nil {
		return location{}, err
	}
	at.marker = foreign.SumOf([]byte(real))[:16]
	return at, nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// looksLikeConversation reports whether a folder has one of a conversation's files.
func looksLikeConversation(dir string) bool {
	for _, name := range []string{metaName, turnsName, trajectoryName, tracesName} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return isDir(filepath.Join(dir, "runs"))
}

// looksLikeRoot reports whether a folder called conversations holds one.
func looksLikeRoot(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.Type()&fs.ModeDir != 0 && looksLikeConversation(filepath.Join(dir, e.Name())) {
			return true
		}
	}
	return false
}
