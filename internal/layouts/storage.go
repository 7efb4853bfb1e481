package layouts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Storage is a place for files: as little as rendering sessions into a folder,
// and keeping that folder up to date, needs. Paths have slashes and are relative
// to the storage; one that could lead out of it is a *PathError. What is not
// there is fs.ErrNotExist.
type Storage interface {
	// List returns the entries of a folder, "" for the storage itself, sorted by name.
	List(ctx context.Context, path string) ([]FileInfo, error)
	// Read opens a file.
	Read(ctx context.Context, path string) (io.ReadCloser, error)
	// Write puts what content writes in the place of a file, and makes the folders
	// above it. Readers see the old content or the new, never a part.
	Write(ctx context.Context, path string, mode fs.FileMode, content func(io.Writer) error) error
	// Append adds to a file, which need not exist.
	Append(ctx context.Context, path string, content []byte) error
	// Stat describes a file, or a folder where the storage has these apart from the files in them.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Delete removes a file, or a folder that is empty.
	Delete(ctx context.Context, path string) error
}

// FileInfo describes a file or folder.
type FileInfo struct {
	Name    string // last element of its path
	Dir     bool
	Size    int64       // -1 of what is neither file nor folder, such as a link
	Mode    fs.FileMode // permission bits
	ModTime time.Time   // zero where the storage knows none

	// Version is another one after each change of the content that the storage can tell, so
	// that what has the same one need not be read to know that it is the same. It is a hint: a
	// change within the same tick of a clock may not show in it. "": the storage says nothing.
	Version string
}

// Swapper is a Storage that takes a file out of its place in the same moment in which another
// one comes there: what somebody else wrote to it until then is not lost.
type Swapper interface {
	Storage
	// Swap puts what content writes in the place of a file, and makes the folders above it. It
	// returns the path of what was there, in the same folder and with a name that IsTemporary
	// recognises; "": nothing was there. What takes its place is durable first if the storage
	// is, and whole. What is there and is no file, such as a folder or a link, stays and is
	// ErrNotFile.
	Swap(ctx context.Context, path string, mode fs.FileMode, content func(io.Writer) error) (displaced string, err error)
	// Displace takes a file out of its place, and returns the path where it is now. What is no
	// file stays and is ErrNotFile.
	Displace(ctx context.Context, path string) (displaced string, err error)
	// Restore puts what was displaced back, unless something else has come there: that is
	// fs.ErrExist.
	Restore(ctx context.Context, displaced, path string) error
}

// Syncer is a Storage that keeps what was done to it in memory until it is asked to.
type Syncer interface {
	// Sync makes the names in folders durable, "" for the storage itself, and those of folders
	// that were made since.
	Sync(ctx context.Context, folders ...string) error
}

// Watcher is a Storage that says when something in it changes.
type Watcher interface {
	// Watch calls changed with the path of each file or folder that may have changed, until ctx
	// is done or watching fails; "" says that anything may have. What changes after ready was
	// called is said, but for files whose names IsTemporary recognises. Of a folder that came or
	// went as a whole, the files in it need not be said. One call of changed at a time.
	Watch(ctx context.Context, ready func(), changed func(path string)) error
}

// ErrNotFile says that what is in a place is no file, or that there is a link on the way to it. No
// storage follows links.
var ErrNotFile = errors.New("not a file")

// Walker is a Storage that has files and no folders: what is in a folder it knows by looking at
// all files, and so it lists many at a time. A path can be that of a file and lead to others.
type Walker interface {
	// Walk yields the files below a folder, "" for all, with their paths, in any order.
	Walk(ctx context.Context, folder string) iter.Seq2[Found, error]
}

// Found is a file that Walk found.
type Found struct {
	Path string
	FileInfo
}

// Walk yields the files below a folder of a storage, "" for all, in any order. Folders are not among
// them, what is neither file nor folder is.
func Walk(ctx context.Context, st Storage, folder string) iter.Seq2[Found, error] {
	if w, ok := st.(Walker); ok {
		return w.Walk(ctx, folder)
	}
	return func(yield func(Found, error) bool) { walk(ctx, st, folder, yield) }
}

func walk(ctx context.Context, st Storage, folder string, yield func(Found, error) bool) (more bool) {
	list, err := st.List(ctx, folder)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || yield(Found{}, err)
	}
	for _, e := range list {
		name := path.Join(folder, e.Name)
		if e.Dir {
			if !walk(ctx, st, name, yield) {
				return false
			}
		} else if !yield(Found{name, e}, nil) {
			return false
		}
	}
	return true
}

// ListFound makes the list of a folder of all files that are below it, for storages that know
// nothing else. That there is none is fs.ErrNotExist, but for the storage itself.
func ListFound(folder string, found iter.Seq2[Found, error]) ([]FileInfo, error) {
	prefix := folder
	if folder != "" {
		prefix += "/"
	}
	list, dirs := []FileInfo{}, make(map[string]bool)
	for f, err := range found {
		if err != nil {
			return nil, err
		}
		name, _, below := strings.Cut(strings.TrimPrefix(f.Path, prefix), "/")
		if !below {
			list = append(list, f.FileInfo)
		} else if !dirs[name] {
			dirs[name] = true
			list = append(list, FileInfo{Name: name, Dir: true})
		}
	}
	if len(list) == 0 && folder != "" {
		return nil, atPath("list", folder, fs.ErrNotExist)
	}
	slices.SortFunc(list, func(a, b FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// PathError refuses a path that could lead out of a storage.
type PathError struct{ Path string }

func (e *PathError) Error() string {
	return fmt.Sprintf("formats: %q is not a path inside the folder", e.Path)
}

// CheckPath refuses what is not made of plain names, with a *PathError.
func CheckPath(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if !IsFileName(part) {
			return &PathError{name}
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return &PathError{name}
	}
	return nil
}

// The permission bits that are worth keeping: whether others may read, and
// whether it is a program.
const (
	modeFile           = 0o644
	modeProgram        = 0o755
	modePrivate        = 0o600
	modePrivateProgram = 0o700
)

// ModeOf returns the permission bits by which a file is remembered, 0 for those of
// an ordinary file. Whether the owner may write is not kept.
func ModeOf(perm fs.FileMode) int64 {
	if runtime.GOOS == "windows" {
		return 0 // it has none
	}
	private, program := perm&0o077 == 0, perm&0o100 != 0
	switch {
	case private && program:
		return modePrivateProgram
	case private:
		return modePrivate
	case program:
		return modeProgram
	}
	return 0
}

// FileMode returns the permission bits of a remembered mode; 0 is 0644.
func FileMode(mode int64) fs.FileMode {
	if mode == 0 {
		return modeFile
	}
	return fs.FileMode(mode) & fs.ModePerm
}
