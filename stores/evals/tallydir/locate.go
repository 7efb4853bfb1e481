package tallydir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// locate finds the root for a path that a user gave.
func locate(path string) (foreign.Location, error) {
	at, err := foreign.LocationOf(Format, path)
	if err != nil {
		return at, err
	}
	abs := at.Root
	parent := filepath.Dir(abs)
	switch {
	case isDir(filepath.Join(abs, conversations)):
	case isDir(filepath.Join(abs, ".tally", conversations)):
		at.Root = filepath.Join(abs, ".tally")
	case filepath.Base(abs) == conversations && looksLikeRoot(abs):
		at.Root, at.Name = parent, filepath.Base(parent)
	case filepath.Base(parent) == conversations && looksLikeConversation(abs):
		at.Single, at.Root = at.Name, filepath.Dir(parent)
		at.Name = filepath.Base(at.Root)
	default:
		return at, fmt.Errorf("%s: %s: holds neither conversations/ nor a conversation: %w", Format, path, formats.ErrUnknownLayout)
	}
	return at.Settled()
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
