package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/internal/disk/durable"
)

// DamageError reports a content that is missing or damaged.
type DamageError struct {
	Object string // its file
	What   string
	File   string // a file that needs it; the first found
	Backup string // the backup of File
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("backup: %s %s; %s of backup %s needs it", e.Object, e.What, e.File, e.Backup)
}

// TargetError reports that a backup cannot be restored into a directory.
type TargetError struct {
	Dir  string
	What string
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("backup: restore into %s: %s", e.Dir, e.What)
}

// stagePattern is the prefix of the folders in which a restore works, beside its target.
const stagePattern = ".tally-restoring-"

// Restore writes the files of a backup into a directory that is missing or empty. It writes into a folder beside it.
// When every content has matched its hash, everything is on disk and accept has returned no error for the folder, it
// renames the folder to the target. Until then the target is unchanged.
//
// Errors: *DamageError, *TargetError, the error of accept, or the system's.
func (m Manifest) Restore(ctx context.Context, dir, target string, accept func(stage string) error, progress func(done, total int64)) (err error) {
	target = linked(target)
	if err := checkTarget(target); err != nil {
		return err
	}
	if err := makeDir(filepath.Dir(target)); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(filepath.Dir(target), filepath.Base(target)+stagePattern+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(stage))
		}
	}()
	if err := m.extract(ctx, dir, stage, progress); err != nil {
		return err
	}
	if err := accept(stage); err != nil {
		return err
	}
	if err := removed(target); err != nil { // the target is empty
		return &TargetError{target, fmt.Sprintf("it cannot be replaced (%v): name a folder in it", err)}
	}
	// The commit point: before it the target is missing or empty, after it it is complete.
	if err := os.Rename(stage, target); err != nil {
		return err
	}
	return durable.SyncPath(filepath.Dir(target))
}

// linked resolves a target that is a link, so that the restore replaces the directory and keeps the link.
func linked(target string) string {
	if resolved, err := filepath.EvalSymlinks(target); err == nil {
		return resolved
	}
	return target
}

func checkTarget(target string) error {
	entries, err := os.ReadDir(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return &TargetError{target, "it is not empty"}
	}
	return nil
}

// Stages lists folders beside a target that killed restores left.
func Stages(target string) (paths []string) {
	target = linked(target)
	entries, _ := os.ReadDir(filepath.Dir(target)) // an unreadable directory has none
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(target)+stagePattern) {
			paths = append(paths, filepath.Join(filepath.Dir(target), e.Name()))
		}
	}
	return paths
}

// extract writes the files into a new folder.
func (m Manifest) extract(ctx context.Context, dir, stage string, progress func(done, total int64)) error {
	root, err := os.OpenRoot(stage)
	if err != nil {
		return err
	}
	defer root.Close()
	var done int64
	buffer, folders := make([]byte, 1<<20), map[string]bool{".": true}
	for _, f := range m.Files {
		for d := path.Dir(f.Name); d != "."; d = path.Dir(d) {
			folders[d] = true
		}
		if err := root.MkdirAll(path.Dir(f.Name), 0o700); err != nil {
			return err
		}
		if err := m.write(ctx, root, dir, f, buffer); err != nil {
			return err
		}
		done += f.Size()
		progress(done, m.Bytes)
	}
	for d := range folders {
		if err := durable.SyncPath(filepath.Join(stage, filepath.FromSlash(d))); err != nil {
			return err
		}
	}
	return nil
}

func (m Manifest) write(ctx context.Context, root *os.Root, dir string, f File, buffer []byte) error {
	to, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, p := range f.Parts {
		what, err := readPart(ctx, dir, p, to, buffer)
		if err == nil && what != "" {
			err = &DamageError{Object: object(dir, p.Sum), What: what, File: f.Name, Backup: m.Name}
		}
		if err != nil {
			return errors.Join(err, to.Close())
		}
	}
	return errors.Join(durable.SyncFile(to), to.Close())
}

// Content returns the content of a file of the backup in a folder. The error is a *DamageError, or the system's.
func (m Manifest) Content(ctx context.Context, dir string, f File) ([]byte, error) {
	var content bytes.Buffer
	buffer := make([]byte, 1<<20)
	for _, p := range f.Parts {
		what, err := readPart(ctx, dir, p, &content, buffer)
		if err == nil && what != "" {
			err = &DamageError{Object: object(dir, p.Sum), What: what, File: f.Name, Backup: m.Name}
		}
		if err != nil {
			return nil, err
		}
	}
	return content.Bytes(), nil
}

// readPart copies a content. It returns a description of the damage, or "".
func readPart(ctx context.Context, dir string, p Part, to io.Writer, buffer []byte) (what string, err error) {
	f, err := openRegular(object(dir, p.Sum))
	if errors.Is(err, fs.ErrNotExist) {
		return "is missing", nil
	}
	if err != nil {
		return err.Error(), nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() != p.Size {
		return fmt.Sprintf("has %d bytes, not %d", info.Size(), p.Size), nil
	}
	h := sha256.New()
	for read := int64(0); read < p.Size; {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := f.Read(buffer)
		if err != nil {
			return fmt.Sprintf("cannot be read: %v", err), nil
		}
		h.Write(buffer[:n])
		read += int64(n)
		if _, err := to.Write(buffer[:n]); err != nil {
			return "", err
		}
	}
	if sumOf(h) != p.Sum {
		return "is damaged: it does not have the SHA-256 in its name", nil
	}
	return "", nil
}
