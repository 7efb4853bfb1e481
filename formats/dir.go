package formats

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Dir is a Storage in a folder of the file system. Nothing it does leaves the
// folder, symbolic links included.
type Dir struct {
	root *os.Root
}

var _ Storage = (*Dir)(nil)

// OpenDir opens a folder, and makes it if it is not there.
func OpenDir(name string) (*Dir, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &Dir{root}, nil
}

// Close releases the folder.
func (d *Dir) Close() error { return d.root.Close() }

// List implements Storage.
func (d *Dir) List(_ context.Context, name string) ([]Entry, error) {
	if name == "" {
		name = "."
	} else if err := CheckPath(name); err != nil {
		return nil, err
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	infos, err := f.Readdir(-1)
	if err != nil {
		return nil, err
	}
	list := make([]Entry, len(infos))
	for i, info := range infos {
		list[i] = entryOf(info)
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func entryOf(info fs.FileInfo) Entry {
	return Entry{Name: info.Name(), Dir: info.IsDir(), Size: info.Size(), Mode: info.Mode().Perm()}
}

// Read implements Storage.
func (d *Dir) Read(_ context.Context, name string) (io.ReadCloser, error) {
	if err := CheckPath(name); err != nil {
		return nil, err
	}
	return d.root.Open(name)
}

// Write implements Storage: by way of a temporary file in the same folder. It
// streams, so that a file may be larger than memory.
func (d *Dir) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (err error) {
	if err := d.makeAbove(name); err != nil {
		return err
	}
	temporary := TemporaryName(name)
	f, err := d.root.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.root.Remove(temporary)
		}
	}()
	if err := cmp.Or(fill(f, mode, content), f.Close(), ctx.Err()); err != nil {
		return err
	}
	return d.root.Rename(temporary, name)
}

// makeAbove makes the folders above a file.
func (d *Dir) makeAbove(name string) error {
	if err := CheckPath(name); err != nil {
		return err
	}
	return d.root.MkdirAll(path.Dir(name), 0o755)
}

func fill(f *os.File, mode fs.FileMode, content func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 64<<10)
	if err := content(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Chmod(mode.Perm())
}

// IsTemporary reports whether a file's name is one that a storage uses while it writes, or for
// what it has displaced; a crash may leave such a file behind.
func IsTemporary(name string) bool { return strings.Contains(path.Base(name), TemporaryMark) }

// TemporaryMark is what such a name has, with that of the file before it.
const TemporaryMark = ".tally-tmp-"

// TemporaryName returns a name that IsTemporary recognises, in the folder of a file.
func TemporaryName(name string) string {
	dir, base := path.Split(name)
	return dir + base[:min(len(base), 100)] + TemporaryMark + rand.Text()
}

// Append implements Storage.
func (d *Dir) Append(_ context.Context, name string, content []byte) error {
	if err := d.makeAbove(name); err != nil {
		return err
	}
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, modeFile)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Stat implements Storage.
func (d *Dir) Stat(_ context.Context, name string) (Entry, error) {
	if err := CheckPath(name); err != nil {
		return Entry{}, err
	}
	info, err := d.root.Lstat(name)
	if err != nil {
		return Entry{}, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return Entry{Name: info.Name(), Size: -1}, nil // a link or device: nothing that Write left
	}
	return entryOf(info), nil
}

// Delete implements Storage.
func (d *Dir) Delete(_ context.Context, name string) error {
	if err := CheckPath(name); err != nil {
		return err
	}
	return d.root.Remove(name)
}
