package storedir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

const (
	backupsFile    = "backups.json"
	backupsVersion = 1    // of the format
	maxBackups     = 1000 // folders
)

// backups is the content of backupsFile.
type backups struct {
	Version int      `json:"version"`
	Folders []string `json:"folders"` // newest last
}

// Backups returns the folders in which the store has backups, as far as the store knows. A folder may be gone.
func Backups(dir string) ([]string, error) {
	var b backups
	err := readState(filepath.Join(dir, backupsFile), backupsVersion, &b)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b.Folders, err
}

// NoteBackups notes that a folder has backups of the store. Of more than 1,000 folders it forgets the oldest.
func NoteBackups(dir, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	known, err := Backups(dir)
	if err != nil && !IsDamaged(err) || slices.Contains(known, folder) {
		return err
	}
	known = append(known, folder)
	known = known[max(0, len(known)-maxBackups):]
	return statefile.Write(filepath.Join(dir, backupsFile), backups{Version: backupsVersion, Folders: known}, durable.WithSync)
}
