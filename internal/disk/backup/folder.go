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
	tempName   = "new.tally-tmp-" // durable.IsTemporary knows it
)

// names are what may be in a folder of backups: what is made there, and what a system puts
// into a directory that nobody uses yet.
var names = []string{objectsDir, backupsDir, lockName, "lost+found", ".DS_Store"}

var (
	// ErrNoBackup says that there is no such backup.
	ErrNoBackup = errors.New("there is no such backup")

	// ErrUnreadable says that a manifest cannot be read.
	ErrUnreadable = errors.New("the backup cannot be read")
)

// NotFolderError says that a directory is not one of backups, and has other things in it.
type NotFolderError struct {
	Dir   string
	Other string // something that is in it; "": it is not there, or has nothing of a backup
}

func (e *NotFolderError) Error() string {
	if e.Other == "" {
		return fmt.Sprintf("backup: there are no backups in %s", e.Dir)
	}
	return fmt.Sprintf("backup: %s is not a folder of backups: there is %q in it; name one that is missing or empty", e.Dir, e.Other)
}

// BusyError says that another process writes to the folder.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("backup: another process is writing to %s", e.Dir)
}

// A Backup is a manifest, or why it cannot be read.
type Backup struct {
	Manifest
	File string // its name in backups/
	Err  error
}

// List returns the backups in a folder, the oldest first. Those that cannot be read have
// an Err. It returns *NotFolderError if there cannot be any.
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
			continue // what was being written
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

// newest returns the newest backup that can be read.
func newest(list []Backup) (m Manifest, ok bool) {
	for _, b := range slices.Backward(list) {
		if b.Err == nil {
			return b.Manifest, true
		}
	}
	return Manifest{}, false
}

// Find returns the backup whose name begins so, the newest if that is "". One that cannot
// be read is an error, and not passed over for an older one.
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
		return Manifest{}, fmt.Errorf("%w: none in the folder was completed", ErrNoBackup)
	case len(found) == 0:
		return Manifest{}, fmt.Errorf("%w: none has a name that begins with %q", ErrNoBackup, name)
	case len(found) > 1:
		return Manifest{}, &AmbiguousError{Name: name, First: found[0].Name, Second: found[1].Name}
	}
	return found[0].Manifest, found[0].Err
}

// AmbiguousError says that a name is the beginning of those of several backups.
type AmbiguousError struct{ Name, First, Second string }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("backup: %q may be %s or %s", e.Name, e.First, e.Second)
}

// Check returns *NotFolderError if a directory has other things in it than backups. One
// that is missing or empty may become a folder of backups.
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

// A Writer writes to a folder. It has its lock until it is closed.
type Writer struct {
	dir     string
	lock    *os.File
	list    []Backup
	prev    Manifest        // the newest that can be read
	unsured map[string]bool // folders that have names which are not synced
	buffer  []byte
}

// Open opens a folder for writing, and makes it if it is missing. Errors: *BusyError,
// *NotFolderError, or the system's.
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

// makeDirs makes the folder and those in it, and their names durable.
func makeDirs(dir string) error {
	for _, name := range []string{objectsDir, backupsDir} {
		if err := makeDir(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return durable.SyncPath(dir) // whoever made them may have been ended before
}

// makeDir makes a directory and those above it, and the names of what was missing durable.
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

// begin removes what others were writing when they were ended.
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

// Close gives the folder up.
func (w *Writer) Close() error { return w.lock.Close() }

// object is where a content is kept.
func object(dir string, sum Sum) string {
	text := sum.String()
	return filepath.Join(dir, objectsDir, text[:2], text)
}
