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

// File is a file of an imported folder, as it was found.
type File struct {
	Path   string // inside the session's folder
	Full   string // below the root
	Size   int64
	Mode   int64
	Age    time.Time         // when it was changed last; zero: nobody knows
	Sum    string            // of its bytes; "": nobody needed it yet
	Format events.FileFormat // by which the state renders it
	Value  bool              // the state gets something from it
	Issues []layouts.Problem
	Data   []byte // the file, if it is in memory
	bad    int    // lines
}

// Problem says what is wrong with the file, or a line of it.
func (f *File) Problem(line int, reason string) {
	f.Issues = append(f.Issues, layouts.Problem{File: f.Full, Line: line, Reason: reason})
}

const maxBadLines = 50 // listed for one file

// BadLine says what is wrong with a line. The first ones are listed, EndLines counts the rest.
func (f *File) BadLine(line int, reason string) {
	if f.bad++; f.bad <= maxBadLines {
		f.Problem(line, reason)
	}
}

// EndLines says that the last line was read.
func (f *File) EndLines() {
	if f.bad > maxBadLines {
		f.Problem(0, fmt.Sprintf("and %d more such lines", f.bad-maxBadLines))
	}
}

// FileOf returns a file that was listed.
func FileOf(e layouts.Entry, rel, full string) (*File, error) {
	if e.Dir || IsOdd(e) {
		return nil, &fs.PathError{Op: "import", Path: full, Err: fs.ErrInvalid}
	}
	return &File{Path: rel, Full: full, Size: e.Size, Mode: layouts.ModeOf(e.Mode), Age: e.ModTime}, nil
}

// File finds a file that has a name of its own below the root.
func (t Tree) File(full string) (*File, error) {
	e, err := t.st.Stat(t.ctx, full)
	if err != nil {
		return nil, err
	}
	return FileOf(e, full, full)
}

// Hash reads a file for its hash and size.
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

// Folder is the folder of a session, as it was found.
type Folder struct {
	Unit
	In    *Intake // the import that looks at it
	Tree  Tree
	Limit int     // bytes that a value may have: the event around it must fit too
	Files []*File // sorted by path
	Links []string
}

// Folder returns a folder of which nothing was looked at yet.
func (in *Intake) Folder(u Unit) Folder {
	return Folder{Unit: u, In: in, Tree: in.Tree, Limit: int(WholeLimit(in.Target)) - 64<<10}
}

// List finds the files of the folder and of those in it.
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

func (f *Folder) add(e layouts.Entry, rel string) error {
	file, err := FileOf(e, rel, path.Join(f.Dir, rel))
	if err == nil {
		f.Files = append(f.Files, file)
	}
	return err
}

// Oldest returns the time at which the first of the files was changed last, see [Tree.Oldest].
func (f *Folder) Oldest() (events.Timestamp, error) { return f.Tree.Oldest(f.Files...) }

// Unit is a session to import.
type Unit struct {
	ID   string
	Dir  string // its folder below the root
	File string // the one file there that it is; "": every file there is its own
}

// place is where the unit is, for a report.
func (u Unit) place() string { return path.Join(u.Dir, u.File) }

// Units lists the sessions whose folders are in one of the root, or the one that was
// asked for.
func (in *Intake) Units(dir string) ([]Unit, error) {
	if in.Single != "" {
		return []Unit{{ID: idOf(in.Single), Dir: path.Join(dir, in.Single)}}, nil
	}
	entries, err := in.Tree.Entries(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []Unit
	for _, e := range entries {
		if id := idOf(e.Name); e.Dir && (in.Wants(id) || in.Wants(e.Name)) {
			list = append(list, Unit{ID: id, Dir: path.Join(dir, e.Name)})
		}
	}
	return list, nil
}

// Wants reports whether a session is among those asked for.
func (in *Intake) Wants(id string) bool {
	return len(in.Options.Only) == 0 || slices.Contains(in.Options.Only, id)
}
