package s2

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/layouts"
)

// Storage keeps files in a basin. Its methods are safe for concurrent use.
type Storage struct{ o Config }

var _ layouts.Walker = (*Storage)(nil)

// New returns the storage of a basin. It does not check that the basin exists.
func New(o Config) *Storage { return &Storage{o} }

// Headers of records. headKind has the kind of a record.
const (
	headKind   = "tally"
	headID     = "tally-version"
	headPieces = "tally-pieces" // number of pieces of the version, on the last one
	headMode   = "tally-mode"   // octal, on the last one, if it is not 644

	kindPiece  = "piece" // not the last piece
	kindFile   = "file"
	kindAppend = "append"
	kindGone   = "gone"
)

// file is the content of a stream.
type file struct {
	layouts.FileInfo
	there   bool
	content []byte
	foreign bool                // the content is from records without our headers
	pieces  map[string][][]byte // of incomplete versions
}

func header(r record, name string) string {
	for _, h := range r.Headers {
		if string(h[0]) == name {
			return string(h[1])
		}
	}
	return ""
}

// take adds a record.
func (f *file) take(r record) {
	if len(r.Headers) == 1 && len(r.Headers[0][0]) == 0 {
		return // a command to the server
	}
	kind := header(r, headKind)
	if kind == "" {
		if f.there && f.foreign {
			f.content = append(f.content, '\n')
		} else {
			f.content = nil
		}
		f.foreign, f.Mode = true, layouts.FileMode(0)
		f.is(r, append(f.content, r.Body...))
		return
	}
	id := header(r, headID)
	f.pieces[id] = append(f.pieces[id], r.Body)
	if kind == kindPiece {
		return
	}
	pieces := f.pieces[id]
	delete(f.pieces, id)
	if header(r, headPieces) != strconv.Itoa(len(pieces)) {
		return // another writer completed a version meanwhile and trimmed the first pieces
	}
	content := bytes.Join(pieces, nil)
	switch kind {
	case kindAppend:
		if !f.there {
			f.Mode, f.content = layouts.FileMode(0), nil
		}
		f.is(r, append(f.content, content...))
	case kindFile:
		f.Mode = layouts.FileMode(0)
		if bits, err := strconv.ParseUint(header(r, headMode), 8, 32); err == nil {
			f.Mode = fs.FileMode(bits) & fs.ModePerm
		}
		f.foreign = false
		f.is(r, content)
	case kindGone:
		f.there, f.foreign, f.content = false, false, nil
	}
}

func (f *file) is(r record, content []byte) {
	f.there, f.content = true, content
	f.Size, f.Version, f.ModTime = int64(len(content)), strconv.FormatUint(r.Seq, 10), time.UnixMilli(int64(r.Timestamp))
}

// stream returns the name of the stream for a path.
func (s *Storage) stream(path string) (string, error) {
	if err := layouts.CheckPath(path); err != nil {
		return "", err
	}
	name := s.o.Prefix + filename.Text(path)
	if len(name) > maxName {
		return "", &fs.PathError{Op: "name", Path: path, Err: fmt.Errorf("layouts/s2: the name of a stream has at most %d bytes, not %d", maxName, len(name))}
	}
	return name, nil
}

func fault(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("layouts/s2: %w", err)
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// load reads a file.
func (s *Storage) load(ctx context.Context, op, path string) (*file, error) {
	stream, err := s.stream(path)
	if err != nil {
		return nil, err
	}
	f := &file{pieces: make(map[string][][]byte)}
	f.Name = path[strings.LastIndexByte(path, '/')+1:]
	err = s.records(ctx, stream, f.take)
	if isStatus(err, http.StatusNotFound) || err == nil && !f.there {
		err = fs.ErrNotExist
	}
	return f, fault(op, path, err)
}

// Read implements Storage.
func (s *Storage) Read(ctx context.Context, path string) (io.ReadCloser, error) {
	f, err := s.load(ctx, "read", path)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(f.content)), nil
}

// Stat implements Storage. It reads the file.
func (s *Storage) Stat(ctx context.Context, path string) (layouts.FileInfo, error) {
	f, err := s.load(ctx, "stat", path)
	if err != nil {
		return layouts.FileInfo{}, err
	}
	return f.FileInfo, nil
}

// Write implements Storage.
func (s *Storage) Write(ctx context.Context, path string, mode fs.FileMode, content func(io.Writer) error) error {
	bits := ""
	if mode.Perm() != layouts.FileMode(0) {
		bits = strconv.FormatUint(uint64(mode.Perm()), 8)
	}
	return s.put(ctx, "write", path, kindFile, bits, content)
}

// Append implements Storage.
func (s *Storage) Append(ctx context.Context, path string, content []byte) error {
	return s.put(ctx, "append", path, kindAppend, "", func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// Delete implements Storage.
func (s *Storage) Delete(ctx context.Context, path string) error {
	if _, err := s.load(ctx, "delete", path); err != nil {
		return err
	}
	return s.put(ctx, "delete", path, kindGone, "", func(io.Writer) error { return nil })
}

// version writes a version in pieces.
type version struct {
	store func(body []byte, last bool) error
	data  []byte
}

// Write implements io.Writer. It stores a piece when more bytes follow.
func (v *version) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(v.data) == pieceSize {
			if err := v.store(v.data, false); err != nil {
				return n, err
			}
			v.data = v.data[:0]
		}
		k := min(len(p), pieceSize-len(v.data))
		v.data, p, n = append(v.data, p[:k]...), p[k:], n+k
	}
	return n, nil
}

// put appends a version. The last record is the commit point: without it, readers ignore the pieces.
func (s *Storage) put(ctx context.Context, op, path, kind, mode string, content func(io.Writer) error) error {
	stream, err := s.stream(path)
	if err != nil {
		return err
	}
	id, pieces, first := rand.Text(), 0, uint64(0)
	v := &version{store: func(body []byte, last bool) error {
		pieces++
		r := record{Body: body, Headers: [][2][]byte{{[]byte(headKind), []byte(kindPiece)}, {[]byte(headID), []byte(id)}}}
		if last {
			r.Headers[0][1] = []byte(kind)
			r.Headers = append(r.Headers, [2][]byte{[]byte(headPieces), []byte(strconv.Itoa(pieces))})
			if mode != "" {
				r.Headers = append(r.Headers, [2][]byte{[]byte(headMode), []byte(mode)})
			}
		}
		at, err := s.append(ctx, stream, r)
		if pieces == 1 {
			first = at
		}
		return fault(op, path, err)
	}}
	if err := cmp.Or(content(v), ctx.Err()); err != nil {
		return err
	}
	if err := v.store(v.data, true); err != nil {
		return err
	}
	if kind != kindAppend && first > 0 {
		until := binary.BigEndian.AppendUint64(nil, first)
		_, _ = s.append(ctx, stream, record{Headers: [][2][]byte{{nil, []byte("trim")}}, Body: until}) // after an error, the old records only take space
	}
	return nil
}

// found returns the file that a stream below the prefix stands for.
func (s *Storage) found(name string) layouts.Found {
	path, ok := filename.OfText(strings.TrimPrefix(name, s.o.Prefix))
	if !ok || layouts.CheckPath(path) != nil {
		odd := strings.ReplaceAll(strings.TrimPrefix(name, s.o.Prefix), "/", ":")
		return layouts.Found{Path: odd, FileInfo: layouts.FileInfo{Name: odd, Size: -1}}
	}
	return layouts.Found{Path: path, FileInfo: layouts.FileInfo{Name: path[strings.LastIndexByte(path, '/')+1:]}}
}

// List implements Storage. It reads all files below the folder.
func (s *Storage) List(ctx context.Context, folder string) ([]layouts.FileInfo, error) {
	return layouts.ListFound(folder, s.Walk(ctx, folder))
}

// Walk implements layouts.Walker. It reads the files.
func (s *Storage) Walk(ctx context.Context, folder string) iter.Seq2[layouts.Found, error] {
	return func(yield func(layouts.Found, error) bool) {
		prefix := s.o.Prefix
		if folder != "" {
			if err := layouts.CheckPath(folder); err != nil {
				yield(layouts.Found{}, err)
				return
			}
			prefix += filename.Text(folder) + "/"
		}
		ended := false
		err := s.names(ctx, prefix, func(name string) bool {
			f := s.found(name)
			if f.Size == 0 {
				info, err := s.Stat(ctx, f.Path)
				if errors.Is(err, fs.ErrNotExist) {
					return true
				}
				if err != nil {
					yield(layouts.Found{}, err)
					ended = true
					return false
				}
				f.FileInfo = info
			}
			ended = !yield(f, nil)
			return !ended
		})
		if err != nil && !ended {
			yield(layouts.Found{}, fault("list", folder, err))
		}
	}
}
