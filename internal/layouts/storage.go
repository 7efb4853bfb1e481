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

// Storage is a store of files with the operations that an export and a tree need. Names are paths with slashes, relative
// to the storage. A path that could lead out of it is a *PathError. A missing file is fs.ErrNotExist.
type Storage interface {
	// List returns the entries of a folder, "" for the storage itself, sorted by name.
	List(ctx context.Context, folder string) ([]FileInfo, error)
	// Read opens a file.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Write replaces or creates a file by the output of content, and creates the folders above it. Readers see the old
	// or the new content, never a part.
	Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error
	// Append appends to a file, and creates it if it is missing.
	Append(ctx context.Context, name string, content []byte) error
	// Stat describes a file, or a folder if the storage has folders.
	Stat(ctx context.Context, name string) (FileInfo, error)
	// Delete removes a file or an empty folder.
	Delete(ctx context.Context, name string) error
}

// FileInfo describes a file or folder.
type FileInfo struct {
	Name    string // last element of its path
	Dir     bool
	Size    int64       // -1 for a link and anything else that is neither file nor folder
	Mode    fs.FileMode // permission bits
	ModTime time.Time   // zero if the storage has no times

	// Version changes with each change of the content that the storage notices. If it is equal, the content need not
	// be read again. It is a hint: a second change within one tick of the clock may not show. "": unknown.
	Version string
}

// Swapper is a Storage that replaces a file and keeps the old one in one step. So no concurrent write to the old file
// is lost.
type Swapper interface {
	Storage
	// Swap replaces a file by the output of content, and creates the folders above it. It returns the new path of the
	// old file, in the same folder and with a name that IsTemporary recognises, or "" if there was none. In a durable
	// storage the new file is synced before it gets the name. If name is a folder, a link or the like, it stays, and
	// the error is ErrNotFile.
	Swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (displaced string, err error)
	// Displace renames a file and returns its new path. If name is not a file, it stays, and the error is ErrNotFile.
	Displace(ctx context.Context, name string) (displaced string, err error)
	// Restore renames a displaced file back. If name exists by now, the error is fs.ErrExist.
	Restore(ctx context.Context, displaced, name string) error
}

// Syncer is a Storage that makes changes durable only on request.
type Syncer interface {
	// Sync makes the names in folders durable, "" for the storage itself, and those of folders created since the last
	// call.
	Sync(ctx context.Context, folders ...string) error
}

// Watcher is a Storage that reports changes.
type Watcher interface {
	// Watch calls changed with the path of each file or folder that may have changed, until ctx is done or watching
	// fails. "" means that anything may have changed. Watch calls ready before it reports changes; later changes are
	// all reported, except of files whose names IsTemporary recognises. If a folder appears or disappears, its files
	// need not be reported. Calls of changed do not overlap.
	Watch(ctx context.Context, ready func(), changed func(name string)) error
}

// ErrNotFile reports that a path is not a file, or leads through a link. No storage follows links.
var ErrNotFile = errors.New("not a file")

// Walker is a Storage without folders. It finds the content of a folder by listing all files, so it lists many at
// once. A path can be a file and also the prefix of other files.
type Walker interface {
	// Walk yields the files below a folder, "" for all, with their paths, in any order.
	Walk(ctx context.Context, folder string) iter.Seq2[Found, error]
}

// Found is a file found by Walk.
type Found struct {
	Path string
	FileInfo
}

// Walk yields the files below a folder of a storage, "" for all, in any order. It omits folders, and includes links
// and the like.
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

// ListFound lists a folder from all files below it, for storages without folders. If there are none, the error is
// fs.ErrNotExist, except for the storage itself.
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
	return fmt.Sprintf("layouts: %q is not a path inside the folder", e.Path)
}

// CheckPath refuses a path with elements that are not plain names, by a *PathError.
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

// The permission bits that are kept: whether others may read, and whether the file is executable.
const (
	modeFile           = 0o644
	modeProgram        = 0o755
	modePrivate        = 0o600
	modePrivateProgram = 0o700
)

// ModeOf returns the permission bits to record for a file, 0 for an ordinary file. It ignores write permissions.
func ModeOf(perm fs.FileMode) int64 {
	if runtime.GOOS == "windows" {
		return 0 // it has no permission bits
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

// FileMode returns the permission bits of a recorded mode; 0 is 0644.
func FileMode(mode int64) fs.FileMode {
	if mode == 0 {
		return modeFile
	}
	return fs.FileMode(mode) & fs.ModePerm
}
