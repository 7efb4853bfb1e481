package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/lockfile"
)

const (
	objectsDir = "objects"
	backupsDir = "backups"
	lockName   = "backup.lock"
	tempName   = "new.tally-tmp-" // recognised by durable.IsTemporary
)

// names lists the entries that a folder of backups may have: its own, and entries that systems create in an unused
// directory.
var names = []string{objectsDir, backupsDir, lockName, "lost+found", ".DS_Store"}

var (
	// ErrNoBackup reports that no backup has the name.
	ErrNoBackup = errors.New("there is no such backup")

	// ErrUnreadable reports that a manifest cannot be read.
	ErrUnreadable = errors.New("the backup cannot be read")
)

// NotFolderError reports that a directory is not a folder of backups, and has other entries.
type NotFolderError struct {
	Dir   string
	Other string // another entry; "": the directory is missing, or has no backups
}

func (e *NotFolderError) Error() string {
	if e.Other == "" {
		return fmt.Sprintf("backup: there are no backups in %s", e.Dir)
	}
	return fmt.Sprintf("backup: %s is not a folder of backups: it contains %q; name a folder that is missing or empty", e.Dir, e.Other)
}

// BusyError reports that another process writes to the folder.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("backup: another process is writing to %s", e.Dir)
}

// A Backup is a manifest, or the error of reading it.
type Backup struct {
	Manifest
	File string // its name in backups/
	Err  error
}

// List returns the backups in a folder, oldest first. Unreadable ones have an Err. If the directory is not a folder of
// backups, the error is *NotFolderError.
func List(dir string) ([]Backup, error) {
	entries, err := os.ReadDir(filepath.Join(dir, backupsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotFolderError{Dir: dir}
	}
	if err != nil {
		return nil, err
	}
	var list []Backup
	for _, e := range entries {
		name, _, ok := nameOf(e.Name())
		if !ok {
			continue // a temporary file
		}
		m, err := read(filepath.Join(dir, backupsDir, e.Name()))
		if err != nil {
			m, err = Manifest{Name: name}, fmt.Errorf("%w: %s: %w", ErrUnreadable, filepath.Join(dir, backupsDir, e.Name()), err)
		}
		list = append(list, Backup{m, e.Name(), err})
	}
	return list, nil
}

func read(path string) (Manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, err
	}
	return parse(filepath.Base(path), text)
}

// newest returns the newest readable backup.
func newest(list []Backup) (m Manifest, ok bool) {
	for _, b := range slices.Backward(list) {
		if b.Err == nil {
			return b.Manifest, true
		}
	}
	return Manifest{}, false
}

// Find returns the backup whose name begins with name, or the newest if name is "". If that one cannot be read, Find
// returns an error, and no older backup.
func Find(list []Backup, name string) (Manifest, error) {
	var found []Backup
	for _, b := range list {
		if strings.HasPrefix(b.Name, name) {
			found = append(found, b)
		}
	}
	if name == "" && len(found) > 0 {
		found = found[len(found)-1:]
	}
	switch {
	case len(found) == 0 && name == "":
		return Manifest{}, fmt.Errorf("%w: the folder has no complete backup", ErrNoBackup)
	case len(found) == 0:
		return Manifest{}, fmt.Errorf("%w: no name begins with %q", ErrNoBackup, name)
	case len(found) > 1:
		return Manifest{}, &AmbiguousError{Name: name, First: found[0].Name, Second: found[1].Name}
	}
	return found[0].Manifest, found[0].Err
}

// AmbiguousError reports a prefix that several backups' names have.
type AmbiguousError struct{ Name, First, Second string }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("backup: %q is a prefix of %s and of %s", e.Name, e.First, e.Second)
}

// Check returns *NotFolderError if a directory has other entries than backups. A missing or empty directory may become
// a folder of backups.
func Check(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) && !strings.HasPrefix(e.Name(), tempName) {
			return &NotFolderError{Dir: dir, Other: e.Name()}
		}
	}
	return nil
}

// A Writer writes to a folder. It holds the folder's lock until it is closed.
type Writer struct {
	dir     string
	lock    *os.File
	list    []Backup
	prev    Manifest        // the newest readable one
	unsured map[string]bool // folders with names that are not synced
	buffer  []byte
}

// Open opens a folder for writing, and creates it if it is missing. Errors: *BusyError, *NotFolderError, or the
// system's.
func Open(dir string) (*Writer, error) {
	if err := Check(dir); err != nil {
		return nil, err
	}
	if err := makeDirs(dir); err != nil {
		return nil, err
	}
	lock, err := lockfile.Take(filepath.Join(dir, lockName))
	if errors.Is(err, lockfile.ErrLocked) {
		return nil, &BusyError{Dir: dir}
	}
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, lock: lock, unsured: make(map[string]bool), buffer: make([]byte, 1<<20)}
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return w, nil
}

// makeDirs creates the folder and its subfolders durably.
func makeDirs(dir string) error {
	for _, name := range []string{objectsDir, backupsDir} {
		if err := makeDir(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return durable.SyncPath(dir) // the process that made them may have been killed before it synced
}

// makeDir creates a directory and its missing parents durably.
func makeDir(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == parent {
		return err
	}
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return durable.SyncPath(parent)
}

// begin removes temporary files of killed processes.
func (w *Writer) begin() error {
	for _, dir := range []string{w.dir, filepath.Join(w.dir, backupsDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !durable.IsTemporary(e.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	var err error
	if w.list, err = List(w.dir); err == nil {
		w.prev, _ = newest(w.list)
	}
	return err
}

// Dir returns the folder.
func (w *Writer) Dir() string { return w.dir }

// Close releases the lock.
func (w *Writer) Close() error { return w.lock.Close() }

// object returns the path of a content.
func object(dir string, sum Sum) string {
	text := sum.String()
	return filepath.Join(dir, objectsDir, text[:2], text)
}
