package sessiondir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/layouts"
)

// Location is the folder that a path names.
type Location struct {
	Root   string // absolute path of the layout's root
	Name   string // of the root, for users
	Single string // name of the only session to import; "": all
	Marker string // hash of the root's real path
}

// Shape describes how the folders of a layout are named and recognised.
type Shape struct {
	Layout     string
	Sessions   string // name of the folder that holds the sessions' folders
	Inside     string // path of the root inside the folder that a user may name
	Usual      string // usual name of a root; such a root is named after the folder around it
	Kind       string // required kind of a session that an import changes; "": any
	Files      bool   // each session is a file in the root, and the root has nothing else
	Flat       bool   // the layout does not include folders beside those of the sessions
	IsRoot     func(dir string) bool
	HasSession func(dir string) bool // reports whether dir is the folder of a session
	Nothing    string                // error text for any other folder
}

// Find returns the root for a path that a user named: the root itself, the folder around it, the folder of the
// sessions, or the folder of one session.
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

// Locate is Find, with a valid file name as the root's name, and with the marker.
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

// isRootFile reports whether a file can be one beside the sessions, as far as its path shows.
func (s Shape) isRootFile(path string) bool {
	rest, _ := strings.CutPrefix(path, s.Sessions+"/")
	return !s.Files && (!s.Flat || !strings.Contains(rest, "/"))
}

// HoldsSession reports whether a folder holds the folder of a session.
func (s Shape) HoldsSession(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.IsDir() && s.HasSession(filepath.Join(dir, e.Name()))
	})
}

// IsFile reports whether name is a regular file and not a link.
func IsFile(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// Settled returns the location with a valid file name as its name, and with its marker.
func (l Location) Settled() (Location, error) {
	if !layouts.IsFileName(l.Name) || l.Name == string(filepath.Separator) {
		l.Name = "root"
	}
	resolved, err := filepath.EvalSymlinks(l.Root)
	if err != nil {
		return Location{}, err
	}
	l.Marker = SumOf([]byte(resolved))[:16]
	return l, nil
}
