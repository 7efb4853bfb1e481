package storedir

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/log"
)

// DamagedDir returns the folder for the list of lost records and the copies of damaged blocks.
func DamagedDir(dir string) string { return filepath.Join(dir, "damaged") }

const (
	holesFile    = "holes.json"
	holesCopy    = "holes.copy.json" // replaces a damaged holesFile: no other file lists the lost records
	holesVersion = 1                 // of the format
)

// holes is the list of lost records, as stored.
type holes struct {
	Version int        `json:"version"`
	Lost    []log.Hole `json:"lost"` // by offset
}

// ReadHoles returns the records that are known to be lost, by offset. Without a list it returns nil.
func ReadHoles(dir string) ([]log.Hole, error) {
	lost, err := readHolesFile(dir, holesFile)
	if IsDamaged(err) {
		if kept, other := readHolesFile(dir, holesCopy); other == nil {
			return kept, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lost, err
}

func readHolesFile(dir, name string) ([]log.Hole, error) {
	var h holes
	err := readState(filepath.Join(DamagedDir(dir), name), holesVersion, &h)
	return h.Lost, err
}

// AddHoles adds lost records to the list and syncs it. Offsets that the list already has keep their entry.
func AddHoles(dir string, lost []log.Hole) error {
	known, err := ReadHoles(dir)
	if err != nil {
		return err
	}
	all := append(known, lost...)
	slices.SortStableFunc(all, func(a, b log.Hole) int { return cmp.Compare(a.Offset, b.Offset) })
	all = slices.CompactFunc(all, func(a, b log.Hole) bool { return a.Offset == b.Offset })
	for _, name := range []string{holesFile, holesCopy} {
		if err := statefile.Write(filepath.Join(DamagedDir(dir), name), holes{Version: holesVersion, Lost: all}, durable.WithSync); err != nil {
			return err
		}
	}
	return nil
}

// MissingFrom returns the lost records that a view never folded: all of them if the view has gaps, otherwise those
// after its cursor.
func MissingFrom(s catalog.Standing, lost []log.Hole) []log.Hole {
	return slices.DeleteFunc(slices.Clone(lost), func(h log.Hole) bool { return !s.Lacks && h.Offset <= s.Cursor.Offset })
}
