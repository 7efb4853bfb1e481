package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tallylog/tally/internal/disk/durable"
)

// A Source is a file to be copied.
type Source struct {
	Name string // slash-separated, relative to the directory
	Path string // its first Size bytes are copied; "": Text is copied
	Size int64
	Text []byte

	Optional bool // the file is skipped if it is missing or shorter by now
}

// OtherError reports that a folder has backups of another source.
type OtherError struct {
	Dir    string
	Source string // the source of its backups
}

func (e *OtherError) Error() string {
	return fmt.Sprintf("backup: %s has backups of another store, which was %s: name another folder", e.Dir, e.Source)
}

// maxParts bounds the parts of a file. A growing file gets one more with each backup; beyond the bound it is copied as
// one part again.
const maxParts = 64

// errShort reports that a file is shorter than it was.
var errShort = errors.New("the file became shorter while it was copied")

// settled is how long a file must have been unchanged before its stamp is trusted: file systems have coarse clocks.
// Tests change it.
var settled = 2 * time.Second

// Take makes a backup of files, with the other fields of m. It writes no content that the folder has, and reads no file
// whose stamp is unchanged since the newest backup. When it returns, the backup is on disk.
//
// If it is killed or returns an error, there is no backup.
func (w *Writer) Take(ctx context.Context, m Manifest, files []Source, progress func(done, total int64)) (Manifest, error) {
	if w.prev.Log != "" && w.prev.Log != m.Log {
		return Manifest{}, &OtherError{Dir: w.dir, Source: w.prev.Source}
	}
	before := make(map[string]File)
	for _, f := range w.prev.Files {
		before[f.Name] = f
	}
	var total int64
	for _, f := range files {
		total += f.Size
	}
	m.Version, m.Files, m.Bytes, m.NewBytes = Version, nil, 0, 0
	for _, source := range files {
		if err := checkName(source.Name); err != nil {
			return Manifest{}, fmt.Errorf("backup: %w", err)
		}
		f, added, err := w.take(ctx, source, before[source.Name])
		if source.Optional && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errShort)) {
			total -= source.Size
			continue
		}
		if err != nil {
			return Manifest{}, fmt.Errorf("backup: copy %s: %w", cmp.Or(source.Path, source.Name), err)
		}
		m.Files = append(m.Files, f)
		m.Bytes += f.Size()
		m.NewBytes += added
		progress(m.Bytes, total)
	}
	return w.commit(m)
}

// commit writes the manifest.
func (w *Writer) commit(m Manifest) (Manifest, error) {
	for dir := range w.unsured {
		if err := durable.SyncPath(dir); err != nil {
			return Manifest{}, err
		}
	}
	clear(w.unsured)
	m.Time = m.Time.UTC().Truncate(time.Millisecond)
	if n := len(w.list); n > 0 { // the newest has the last name, whatever the clock says
		last, err := time.Parse(nameLayout, w.list[n-1].Name)
		if err == nil && !m.Time.After(last) {
			m.Time = last.Add(time.Millisecond)
		}
	}
	file, text, err := m.encode()
	if err != nil {
		return Manifest{}, err
	}
	if m, err = parse(file, text); err != nil { // an unreadable manifest must not be committed
		return Manifest{}, fmt.Errorf("backup: %w", err)
	}
	// The commit point: before it the backup does not exist, after it it does.
	if err := durable.Replace(filepath.Join(w.dir, backupsDir, file), text, 0o600, durable.WithSync); err != nil {
		return Manifest{}, err
	}
	w.list, w.prev = append(w.list, Backup{Manifest: m, File: file}), m
	return m, nil
}

// take copies a file, and returns how many bytes were new.
func (w *Writer) take(ctx context.Context, s Source, before File) (f File, added int64, err error) {
	f.Name = s.Name
	if s.Path == "" {
		p, added, err := w.keep(ctx, bytes.NewReader(s.Text), int64(len(s.Text)))
		f.Parts = p
		return f, added, err
	}
	for {
		f, added, err = w.takeFile(ctx, s, before)
		if _, again := errors.AsType[*replacedError](err); !again {
			return f, added, err
		}
	}
}

// replacedError reports that a path names another file than the one that was read, whose bytes may be gone.
type replacedError struct{ path string }

func (e *replacedError) Error() string { return e.path + " was replaced while it was copied" }

func (w *Writer) takeFile(ctx context.Context, s Source, before File) (f File, added int64, err error) {
	f.Name = s.Name
	file, err := openRegular(s.Path)
	if err != nil {
		return f, 0, err
	}
	defer file.Close()
	if f.Stamp, err = stampOf(file, s.Size); err != nil {
		return f, 0, err
	}
	if f.Stamp != (Stamp{}) && f.Stamp == before.Stamp && w.hasAll(before.Parts) {
		f.Parts = before.Parts
		return f, 0, nil
	}
	if f.Parts, err = w.same(ctx, file, s.Size, before.Parts); err != nil {
		return f, 0, err
	}
	at := f.Size()
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return f, 0, err
	}
	rest, added, err := w.keep(ctx, file, s.Size-at)
	f.Parts = append(f.Parts, rest...)
	if err == nil && isReplaced(file, s.Path) {
		if added > 0 { // no backup names it, and it may have erased content
			err = removed(object(w.dir, rest[0].Sum))
		}
		return f, 0, errors.Join(err, &replacedError{s.Path})
	}
	return f, added, err
}

// isReplaced reports whether a path names another file than f.
func isReplaced(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && !os.SameFile(have, named)
}

// stampOf returns the stamp of a file that is copied whole, or zero if the next backup must read it again.
func stampOf(f *os.File, size int64) (Stamp, error) {
	s, err := stamp(f)
	if s.Size != size || s.Inode == 0 || time.Since(time.Unix(0, s.Changed)) < settled {
		s = Stamp{}
	}
	return s, err
}

// openRegular opens a regular file. It refuses links and everything else.
func openRegular(path string) (*os.File, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"), f.Close())
	}
	return f, nil
}

// same returns the parts of a file that are unchanged.
func (w *Writer) same(ctx context.Context, f io.Reader, size int64, before []Part) (parts []Part, err error) {
	if len(before) >= maxParts {
		return nil, nil
	}
	for _, p := range before {
		if size -= p.Size; size < 0 || !w.has(p) {
			return parts, nil
		}
		h := sha256.New()
		if err := w.copy(ctx, h, f, p.Size); err != nil {
			return nil, err
		}
		if sumOf(h) != p.Sum {
			return parts, nil
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// keep stores the next size bytes as an object, if size is not 0, and returns how many bytes were new.
func (w *Writer) keep(ctx context.Context, r io.Reader, size int64) (parts []Part, added int64, err error) {
	if size == 0 {
		return nil, 0, nil
	}
	temp, err := os.CreateTemp(w.dir, tempName+"*")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, removed(temp.Name())) }()
	h := sha256.New()
	if err := w.copy(ctx, io.MultiWriter(temp, h), r, size); err != nil {
		return nil, 0, errors.Join(err, temp.Close())
	}
	p := Part{Size: size, Sum: sumOf(h)}
	// An existing object too: the process that renamed it may have been killed before the sync.
	w.unsured[filepath.Dir(object(w.dir, p.Sum))] = true
	w.unsured[filepath.Join(w.dir, objectsDir)] = true
	if w.has(p) {
		return []Part{p}, 0, temp.Close()
	}
	if err := errors.Join(durable.SyncFile(temp), temp.Close()); err != nil {
		return nil, 0, err
	}
	return []Part{p}, size, w.name(temp.Name(), p.Sum)
}

// name renames a temporary file to the name of its content.
func (w *Writer) name(temp string, sum Sum) error {
	path := object(w.dir, sum)
	err := os.Mkdir(filepath.Dir(path), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(temp, path)
}

// removed removes a file that may be missing.
func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// has reports whether an object of the part's size exists. A truncated one is written again; Verify checks contents.
func (w *Writer) has(p Part) bool {
	info, err := os.Lstat(object(w.dir, p.Sum))
	return err == nil && info.Mode().IsRegular() && info.Size() == p.Size
}

func (w *Writer) hasAll(parts []Part) bool {
	return !slices.ContainsFunc(parts, func(p Part) bool { return !w.has(p) })
}

// copy copies exactly size bytes.
func (w *Writer) copy(ctx context.Context, to io.Writer, from io.Reader, size int64) error {
	for size > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := io.ReadFull(from, w.buffer[:min(size, int64(len(w.buffer)))])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d bytes are missing", errShort, size-int64(n))
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(w.buffer[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

func sumOf(h hash.Hash) (s Sum) {
	h.Sum(s[:0])
	return s
}
