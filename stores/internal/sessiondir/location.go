package sessiondir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/layouts"
)

// Location says which folder a path means.
type Location struct {
	Root   string // absolute, the folder of the layout
	Name   string // of the root, as a user would call it
	Single string // name of the one session that was asked for; "": all
	Marker string // hash of the place
}

// Shape says how the folders of a layout are called and known.
type Shape struct {
	Layout     string
	Sessions   string // name of the folder that holds the sessions' folders
	Inside     string // where the root may stand in the folder that a user names
	Usual      string // name of most roots: then the folder around it tells more
	Kind       string // that a session must have to be changed by an import; "": any
	Files      bool   // each session is a file of the root, and there is nothing else in it
	Flat       bool   // folders beside those of the sessions are not part of the layout
	IsRoot     func(dir string) bool
	HasSession func(dir string) bool // the folder of one
	Nothing    string                // what is wrong with any other folder
}

// Find returns the root for a path that a user gave: that of the root itself, of the
// folder around it, of the folder that holds the sessions, or of one session's.
func (s Shape) Find(path string) (Location, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Location{}, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return Location{}, err
	}
	if !info.IsDir() {
		return Location{}, fmt.Errorf("%s: %s: is not a folder: %w", s.Layout, path, layouts.ErrUnknownLayout)
	}
	at, parent := Location{Root: abs, Name: filepath.Base(abs)}, filepath.Dir(abs)
	switch {
	case s.IsRoot(abs):
	case s.IsRoot(filepath.Join(abs, s.Inside)):
		at.Root = filepath.Join(abs, s.Inside)
	case filepath.Base(abs) == s.Sessions && s.HoldsSession(abs):
		at.Root, at.Name = parent, filepath.Base(parent)
	case filepath.Base(parent) == s.Sessions && s.HasSession(abs):
		at.Single, at.Root = at.Name, filepath.Dir(parent)
		at.Name = filepath.Base(at.Root)
	default:
		return at, fmt.Errorf("%s: %s: %s: %w", s.Layout, path, s.Nothing, layouts.ErrUnknownLayout)
	}
	return at, nil
}

// Locate is Find with a name that files can have, and the marker of the place.
func (s Shape) Locate(path string) (Location, error) {
	at, err := s.Find(path)
	if err != nil {
		return at, err
	}
	if at.Name == s.Usual {
		at.Name = filepath.Base(filepath.Dir(at.Root))
	}
	return at.Settled()
}

// isRootFile reports whether a file can be one beside the sessions, as far as its path tells.
func (s Shape) isRootFile(path string) bool {
	rest, _ := strings.CutPrefix(path, s.Sessions+"/")
	return !s.Files && (!s.Flat || !strings.Contains(rest, "/"))
}

// HoldsSession reports whether a folder holds one of a session.
func (s Shape) HoldsSession(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.IsDir() && s.HasSession(filepath.Join(dir, e.Name()))
	})
}

// IsFile reports whether there is a regular file, and not a link to one.
func IsFile(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// Settled gives the location a name that files can have, and the marker of its
// place.
func (l Location) Settled() (Location, error) {
	if !layouts.IsFileName(l.Name) || l.Name == string(filepath.Separator) {
		l.Name = "root"
	}
	real, err := filepath.EvalSymlinks(l.Root)
	if err != nil {
		return Location{}, err
	}
	l.Marker = SumOf([]byte(real))[:16]
	return l, nil
}
