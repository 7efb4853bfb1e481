package foreign

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/formats"
)

// Location says which folder a path means.
type Location struct {
	Root   string // absolute, the folder of the layout
	Name   string // of the root, as a user would call it
	Single string // name of the one session that was asked for; "": all
	Marker string // hash of the place
}

// LocationOf begins with the folder of a path that a user gave. layout is named if
// there is none.
func LocationOf(layout, path string) (Location, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Location{}, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return Location{}, err
	}
	if !info.IsDir() {
		return Location{}, fmt.Errorf("%s: %s: is not a folder: %w", layout, path, formats.ErrUnknownLayout)
	}
	return Location{Root: abs, Name: filepath.Base(abs)}, nil
}

// Settled gives the location a name that files can have, and the marker of its
// place.
func (l Location) Settled() (Location, error) {
	if !formats.IsFileName(l.Name) || l.Name == string(filepath.Separator) {
		l.Name = "root"
	}
	real, err := filepath.EvalSymlinks(l.Root)
	if err != nil {
		return Location{}, err
	}
	l.Marker = SumOf([]byte(real))[:16]
	return l, nil
}
