package sessiondir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// File is a file of an imported folder.
type File struct {
	Path   string // inside the session's folder
	Full   string // below the root
	Size   int64
	Mode   int64
	Age    time.Time         // time of the last change; zero if unknown
	Sum    string            // SHA-256 of its bytes; "" until it is computed
	Format events.FileFormat // by which the state renders it
	Value  bool              // the import takes part of the state from it
	Issues []layouts.Problem
	Data   []byte // the content, if it is in memory
	bad    int    // number of bad lines
}

// Problem adds a problem of the file, or of one of its lines.
func (f *File) Problem(line int, reason string) {
	f.Issues = append(f.Issues, layouts.Problem{File: f.Full, Line: line, Reason: reason})
}

const maxBadLines = 50 // bad lines listed for one file

// BadLine adds a problem of a line. Only the first maxBadLines are listed; EndLines adds the count of the others.
func (f *File) BadLine(line int, reason string) {
	if f.bad++; f.bad <= maxBadLines {
		f.Problem(line, reason)
	}
}

// EndLines ends the list of bad lines after the last line of the file.
func (f *File) EndLines() {
	if f.bad > maxBadLines {
		f.Problem(0, fmt.Sprintf("and %d more such lines", f.bad-maxBadLines))
	}
}

// FileOf returns the File for an entry of a folder. It refuses folders and links.
func FileOf(e layouts.FileInfo, rel, full string) (*File, error) {
	if e.Dir || IsOdd(e) {
		return nil, &fs.PathError{Op: "import", Path: full, Err: fs.ErrInvalid}
	}
	return &File{Path: rel, Full: full, Size: e.Size, Mode: layouts.ModeOf(e.Mode), Age: e.ModTime}, nil
}

// File returns the file at a path below the root, with that path as its name.
func (t Tree) File(full string) (*File, error) {
	e, err := t.st.Stat(t.ctx, full)
	if err != nil {
		return nil, err
	}
	return FileOf(e, full, full)
}

// Hash reads a file to set its hash and size.
func (t Tree) Hash(f *File) error {
	r, err := t.Open(f.Full)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	if f.Size, err = io.Copy(h, r); err != nil {
		return err
	}
	f.Sum = HexSum(h)
	return nil
}

// Read returns the first limit bytes of a file.
func (t Tree) Read(f *File, limit int64) ([]byte, error) {
	r, err := t.Open(f.Full)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	b.Grow(int(min(f.Size, limit)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(r, limit)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Folder is the folder of a session.
type Folder struct {
	Entry
	In    *Intake // the import that reads it
	Tree  Tree
	Limit int     // maximal size of a value in bytes, less than an event because other members must fit too
	Files []*File // sorted by path
	Links []string
}

// Folder returns a folder whose files are not yet listed.
func (in *Intake) Folder(e Entry) Folder {
	return Folder{Entry: e, In: in, Tree: in.Tree, Limit: int(WholeLimit(in.Target)) - 64<<10}
}

// List lists the files of the folder and of its subfolders.
func (f *Folder) List() error {
	err := f.list("")
	slices.SortFunc(f.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return err
}

func (f *Folder) list(dir string) error {
	entries, err := f.Tree.Entries(path.Join(f.Dir, dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			err = f.list(rel)
		case IsOdd(e):
			f.Links = append(f.Links, path.Join(f.Dir, rel))
		default:
			err = f.add(e, rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) add(e layouts.FileInfo, rel string) error {
	file, err := FileOf(e, rel, path.Join(f.Dir, rel))
	if err == nil {
		f.Files = append(f.Files, file)
	}
	return err
}

// Oldest returns the time of the oldest last change of the files, see [Tree.Oldest].
func (f *Folder) Oldest() (events.Timestamp, error) { return f.Tree.Oldest(f.Files...) }

// Entry is a session to import.
type Entry struct {
	ID   string
	Dir  string // its folder below the root
	File string // the only file of the session in Dir; "": all files in Dir
}

// path returns the path of the entry, for a report.
func (e Entry) path() string { return path.Join(e.Dir, e.File) }

// Entries lists the sessions whose folders are in dir, a folder of the root. If the import is of one session, Entries
// returns that one.
func (in *Intake) Entries(dir string) ([]Entry, error) {
	if in.Single != "" {
		return []Entry{{ID: idOf(in.Single), Dir: path.Join(dir, in.Single)}}, nil
	}
	entries, err := in.Tree.Entries(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []Entry
	for _, e := range entries {
		if id := idOf(e.Name); e.Dir && (in.Wants(id) || in.Wants(e.Name)) {
			list = append(list, Entry{ID: id, Dir: path.Join(dir, e.Name)})
		}
	}
	return list, nil
}

// Wants reports whether the import includes a session.
func (in *Intake) Wants(id string) bool {
	return len(in.Options.Only) == 0 || slices.Contains(in.Options.Only, id)
}
