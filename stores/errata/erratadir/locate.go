package erratadir

import (
	"fmt"
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
	case looksLikeRoot(abs):
	case looksLikeRoot(filepath.Join(abs, "data")):
		at.Root = filepath.Join(abs, "data")
	case filepath.Base(abs) == sessions && holdsSession(abs):
		at.Root, at.Name = parent, filepath.Base(parent)
	case filepath.Base(parent) == sessions && looksLikeSession(abs):
		at.Single, at.Root = at.Name, filepath.Dir(parent)
		at.Name = filepath.Base(at.Root)
	default:
		return at, fmt.Errorf("%s: %s: holds neither sessions nor prompts: %w", Format, path, formats.ErrUnknownLayout)
	}
	if at.Name == "data" { // as most are called: that tells nothing
		at.Name = filepath.Base(filepath.Dir(at.Root))
	}
	return at.Settled()
}

func isFile(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// looksLikeSession reports whether a folder has one of a session's own files.
func looksLikeSession(dir string) bool {
	return isFile(filepath.Join(dir, metadataName)) || isFile(filepath.Join(dir, contentName))
}

// holdsSession reports whether a folder called sessions holds one.
func holdsSession(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() && looksLikeSession(filepath.Join(dir, e.Name())) {
			return true
		}
	}
	return false
}

// looksLikeRoot reports whether a folder holds sessions, prompts, or the history
// of the oldest form.
func looksLikeRoot(dir string) bool {
	return holdsSession(filepath.Join(dir, sessions)) || isFile(filepath.Join(dir, promptsName)) || looksLikeHistory(filepath.Join(dir, historyName))
}

// looksLikeHistory reports whether a file begins as the oldest history does.
func looksLikeHistory(name string) bool {
	if !isFile(name) {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := f.Read(head)
	return historyHead.Match(head[:n])
}
