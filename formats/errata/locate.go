package errata

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
)

// location says which folder a path means.
type location struct {
	root   string // absolute, the folder that holds sessions/ or the prompts
	name   string // of the root, as a user would call it
	single string // name of the one session that was asked for; "": all
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
	at := location{root: abs, name: filepath.Base(abs)}
	parent := filepath.Dir(abs)
	switch {
	case !info.IsDir():
		return location{}, fmt.Errorf("errata: %s: is no folder: %w", path, formats.ErrUnknownLayout)
	case looksLikeRoot(abs):
	case looksLikeRoot(filepath.Join(abs, "data")):
		at.root = filepath.Join(abs, "data")
	case filepath.Base(abs) == sessions && holdsSession(abs):
		at.root, at.name = parent, filepath.Base(parent)
	case filepath.Base(parent) == sessions && looksLikeSession(abs):
		at.single, at.root = at.name, filepath.Dir(parent)
		at.name = filepath.Base(at.root)
	default:
		return location{}, fmt.Errorf("errata: %s: holds neither sessions nor prompts: %w", path, formats.ErrUnknownLayout)
	}
	if at.name == "data" { // as most are called: that tells nothing
		at.name = filepath.Base(filepath.Dir(at.root))
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
