package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/projector"
)

// An own view has a file for each version of its definition, so that two versions of a program do not remove each
// other's file.

// engineVersion changes with the tables that all own views have.
const engineVersion = 1

// ownVersion returns the version of the file of an own view.
func ownVersion(version int) int { return engineVersion*(maxOwnVersion+1) + version }

func ownFile(name string, version int) string { return fmt.Sprintf("own-%s.v%d.db", name, version) }

// parseOwnFile is the inverse of ownFile.
func parseOwnFile(file string) (name string, version int, ok bool) {
	stem, isFile := strings.CutSuffix(file, ".db")
	stem, isOwn := strings.CutPrefix(stem, "own-")
	i := strings.LastIndex(stem, ".v")
	if !isFile || !isOwn || i < 0 {
		return "", 0, false
	}
	version, err := strconv.Atoi(stem[i+2:])
	name = stem[:i]
	return name, version, err == nil && ownName.MatchString(name) && ownFile(name, version) == file
}

// OwnFile is a file of an own view, in a process that need not have its definition.
type OwnFile struct {
	Name    string
	Version int
	Keeper  int // process id of the process that keeps it; 0: none, or it cannot be told

	IsKept bool // a process keeps it

	path string
}

// OwnIn lists the files of own views in a directory: by name, the highest version of each first.
func OwnIn(dir string) ([]OwnFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var list []OwnFile
	for _, e := range entries {
		name, version, ok := parseOwnFile(e.Name())
		if !ok {
			continue
		}
		f := OwnFile{Name: name, Version: version, path: filepath.Join(dir, e.Name())}
		f.Keeper, f.IsKept = keeperOf(f.path)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b OwnFile) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(b.Version, a.Version))
	})
	return list, nil
}

// File returns the name of the file.
func (f OwnFile) File() string { return filepath.Base(f.path) }

// Standing returns the progress of the view.
func (f OwnFile) Standing(ctx context.Context) (Standing, error) {
	return f.view().standing(ctx, filepath.Dir(f.path))
}

// view returns the view of a file, for readers.
func (f OwnFile) view() View {
	return View{Name: f.Name, File: filepath.Base(f.path), own: true, form: form{view: f.Name, version: ownVersion(f.Version)}}
}

// Remove removes the file. The process that keeps the view builds it again.
func (f OwnFile) Remove() error {
	if err := Remove(f.path); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return nil
}

const lockSuffix = ".lock" // in place of .db

func lockOf(path string) string { return strings.TrimSuffix(path, ".db") + lockSuffix }

// Keep takes the lock for keeping an own view in a directory, or returns ErrKept. The lock lasts until it is closed or
// the process ends.
func (v View) Keep(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	return keepFile(filepath.Join(dir, v.File))
}

func keepFile(path string) (io.Closer, error) {
	f, err := lockfile.Take(lockOf(path))
	if errors.Is(err, lockfile.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrKept, path)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	// The first byte is what some systems lock. The process id informs people only.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(" "+strconv.Itoa(os.Getpid())), 0)
	}
	return f, nil
}

// keeperOf returns the process that keeps a file.
func keeperOf(path string) (pid int, isKept bool) {
	if _, err := os.Stat(lockOf(path)); err != nil {
		return 0, false
	}
	free, err := lockfile.Take(lockOf(path))
	if err == nil {
		free.Close()
	}
	if !errors.Is(err, lockfile.ErrLocked) {
		return 0, false
	}
	f, err := os.Open(lockOf(path))
	if err != nil {
		return 0, true
	}
	defer f.Close()
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 1)
	pid, _ = strconv.Atoi(string(text[:n]))
	return pid, true
}

// RemoveOlder removes the files of lower versions of an own view that no process keeps.
func (v View) RemoveOlder(dir string) error {
	list, err := OwnIn(dir)
	if err != nil {
		return err
	}
	_, version, _ := parseOwnFile(v.File)
	for _, f := range list {
		if f.Name != v.Name || f.Version >= version {
			continue
		}
		kept, err := keepFile(f.path)
		if errors.Is(err, ErrKept) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(f.Remove(), kept.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Read opens the view in a directory for queries. The caller closes it. If there is no file to read, the error is
// ErrNoView.
func (v View) Read(ctx context.Context, dir string) (*sql.DB, error) {
	path := filepath.Join(dir, v.File)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoView, err)
	}
	r, err := newReader(ctx, v.form, path, "rw&_pragma=query_only(1)") // also with a write-ahead log that its writer left
	if err != nil {
		return nil, err
	}
	if err := checkSeal(path); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrNoView, path, err), r.Close())
	}
	r.db.SetMaxOpenConns(0) // a query may run during another one
	return r.db, nil
}

// The table of a view that has one state for each subject.
const (
	StatesTable  = "states"
	StatesSchema = `CREATE TABLE states{set}(namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
	offset INTEGER NOT NULL, state BLOB NOT NULL, PRIMARY KEY(namespace, kind, id))`
)

// State returns the state of a subject, nil without one, in the file in a directory, and up to which record the view has
// read. If the subject is in quarantine, aside is not nil.
func (v View) State(ctx context.Context, dir string, sub events.Subject) (state []byte, at events.Offset, aside *projector.Quarantine, err error) {
	db, err := v.Read(ctx, dir)
	if err != nil {
		return nil, 0, nil, err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil) // state and cursor belong together
	if err != nil {
		return nil, 0, nil, v.wrap(dir, err)
	}
	defer tx.Rollback()
	c, _, err := readCursor(ctx, tx, v.Name)
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT state FROM "+StatesTable+" WHERE namespace=? AND kind=? AND id=?", sub.Namespace, sub.Kind, sub.ID).Scan(&state)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	if err == nil {
		q := projector.Quarantine{Subject: sub}
		err = tx.QueryRowContext(ctx, "SELECT offset, reason FROM quarantine WHERE namespace=? AND kind=? AND id=?", sub.Namespace, sub.Kind, sub.ID).Scan(offset(&q.Offset), &q.Reason)
		switch {
		case err == nil:
			aside = &q
		case errors.Is(err, sql.ErrNoRows):
			err = nil
		}
	}
	return state, c.Offset, aside, v.wrap(dir, err)
}

func (v View) wrap(dir string, err error) error {
	return (&viewReader{form: v.form, path: filepath.Join(dir, v.File)}).wrap(err)
}
