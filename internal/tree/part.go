package tree

import (
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/internal/layouts"
)

// partStorage is a storage with the files of one entry: edited files with the content that was examined, other files
// with the content of the log. So an import sees the examined content, even if the files change meanwhile.
type partStorage struct {
	under layouts.Storage
	files map[string]piece
}

type piece struct {
	mode    fs.FileMode
	size    int64
	modTime time.Time
	read    func() (io.ReadCloser, error)
	write   func(io.Writer) error // used if read is nil
}

// List implements layouts.Storage.
func (s *partStorage) List(_ context.Context, dir string) ([]layouts.FileInfo, error) {
	seen := make(map[string]layouts.FileInfo)
	for p, f := range s.files {
		rest := p
		if dir != "" {
			below, ok := strings.CutPrefix(p, dir+"/")
			if !ok {
				continue
			}
			rest = below
		}
		name, _, in := strings.Cut(rest, "/")
		if in {
			seen[name] = layouts.FileInfo{Name: name, Dir: true, Mode: 0o755}
		} else {
			seen[name] = f.entry(name)
		}
	}
	if len(seen) == 0 && dir != "" {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrNotExist}
	}
	list := make([]layouts.FileInfo, 0, len(seen))
	for _, e := range seen {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b layouts.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (f piece) entry(name string) layouts.FileInfo {
	return layouts.FileInfo{Name: name, Size: f.size, Mode: f.mode, ModTime: f.modTime}
}

// Read implements layouts.Storage.
func (s *partStorage) Read(_ context.Context, p string) (io.ReadCloser, error) {
	f, ok := s.files[p]
	if !ok {
		return nil, &fs.PathError{Op: "read", Path: p, Err: fs.ErrNotExist}
	}
	if f.read != nil {
		return f.read()
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(f.write(w)) }()
	return r, nil
}

// Stat implements layouts.Storage.
func (s *partStorage) Stat(_ context.Context, p string) (layouts.FileInfo, error) {
	if f, ok := s.files[p]; ok {
		return f.entry(path.Base(p)), nil
	}
	for q := range s.files {
		if strings.HasPrefix(q, p+"/") {
			return layouts.FileInfo{Name: path.Base(p), Dir: true, Mode: 0o755}, nil
		}
	}
	return layouts.FileInfo{}, &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
}

var errReadOnly = &fs.PathError{Op: "write", Path: "", Err: fs.ErrPermission}

// Write implements layouts.Storage and returns an error.
func (s *partStorage) Write(context.Context, string, fs.FileMode, func(io.Writer) error) error {
	return errReadOnly
}

// Append implements layouts.Storage and returns an error.
func (s *partStorage) Append(context.Context, string, []byte) error { return errReadOnly }

// Delete implements layouts.Storage and returns an error.
func (s *partStorage) Delete(context.Context, string) error { return errReadOnly }
