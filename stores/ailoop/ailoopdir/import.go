package ailoopdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Import implements layouts.Layout. It imports a snapshot file, and never writes into the folder.
//
// A repeated import adds only the changes. A session is refused if it exists, differs from the file, and came
// from another place or was changed since its last import. With o.Merge it is not refused. A refused session stays as
// it is. If a file is not a snapshot, or has another version, it is a problem of the report, and nothing of it is
// imported. An error means that the store or the file cannot be used.
func (l Layout) Import(ctx context.Context, target layouts.Target, path string, o layouts.ImportOptions) (layouts.Report, error) {
	at, name, err := locate(path)
	if err != nil {
		return layouts.Report{}, err
	}
	dir, err := layouts.OpenDir(filepath.Dir(at.Root))
	if err != nil {
		return layouts.Report{}, err
	}
	defer dir.Close()
	l.Store.full, l.Store.name = filepath.Base(at.Root), name
	return l.ImportFrom(ctx, target, dir, layouts.Root{Name: at.Name, Marker: at.Marker}, o)
}

// locate returns the file that a path leads to, through any links, and its name.
func locate(path string) (at sessiondir.Location, name string, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return at, "", err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return at, "", err
	}
	if !info.Mode().IsRegular() {
		return at, "", fmt.Errorf("ailoop: %s: is not a file: %w", path, layouts.ErrUnknownLayout)
	}
	at = sessiondir.Location{Root: abs, Name: filepath.Base(filepath.Dir(abs))}
	if !utf8.ValidString(at.Name) {
		at.Name = ""
	}
	if at, err = at.Settled(); err != nil {
		return at, "", err
	}
	at.Root, err = filepath.EvalSymlinks(abs)
	return at, filepath.Base(abs), err
}

// store is the layout's store of histories. For an import of one file, it has the file.
type store struct {
	sessiondir.Defaults
	full, name string // of the only file: the target of a link, and the name that was asked for; "": all files
	one        *snapshotFile
}

// Stamp implements sessiondir.Store.
func (store) Stamp() sessiondir.Stamp { return stamp }

// Shape implements sessiondir.Store.
func (store) Shape() sessiondir.Shape {
	return sessiondir.Shape{Layout: Format, Kind: events.KindHistory, Files: true}
}

// Exports implements sessiondir.Store. The layout has files for histories that were not imported.
func (store) Exports(kind string) bool { return kind == events.KindHistory }

// Document implements sessiondir.Store. No files lie beside the histories.
func (store) Document(string, string, string) events.Subject { return events.Subject{} }

// View implements sessiondir.Store.
func (store) View(src layouts.Source, s *projector.Session) view { return view{src, s} }

// Birth implements sessiondir.Store. A file does not record its beginning.
func (store) Birth(*sessiondir.Intake, sessiondir.Entry) string { return "" }

// Begin implements sessiondir.Store. The file that was asked for must exist.
func (st store) Begin(in *sessiondir.Intake) (store, error) {
	if st.full == "" {
		return st, nil
	}
	var err error
	st.one, err = read(in.Folder(entryOf(st.name)), st.full)
	return st, err
}

func entryOf(name string) sessiondir.Entry {
	id, _ := idOf(name)
	return sessiondir.Entry{ID: id, File: name}
}

// Entries implements sessiondir.Store. Each file of the storage is a snapshot. Folders are skipped, and so are files
// with other names, unless the storage is a part of a folder.
func (st store) Entries(in *sessiondir.Intake, _ string) (list []sessiondir.Entry, err error) {
	entries := []layouts.FileInfo{{Name: st.name}}
	if st.full == "" {
		if entries, err = in.Tree.Entries("."); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		u := entryOf(e.Name)
		switch {
		case e.Dir, st.full == "" && !in.Options.Part && !strings.HasSuffix(e.Name, suffix):
		case sessiondir.IsOdd(e):
			in.Skipped(e.Name)
		case in.Wants(u.ID), in.Wants(strings.TrimPrefix(u.ID, prefix)):
			list = append(list, u)
		}
	}
	return list, nil
}

// Named implements sessiondir.Store.
func (store) Named(ctx context.Context, src layouts.Source, name string) (events.Subject, bool) {
	if id, ok := idOf(name); ok {
		return events.Session(src.Namespace(), id), true
	}
	return sessiondir.FindSession(ctx, src, func(id string) bool { return nameOf(id) == name })
}

// At implements sessiondir.Store. If a file does not have the name of a snapshot, it must be the file of an existing
// history.
func (store) At(ctx context.Context, src layouts.Source, name string, sub events.Subject) (events.Subject, bool) {
	if strings.HasSuffix(name, suffix) {
		return sub, true
	}
	o, err := src.Loader().Outline(ctx, sub, 0)
	return sub, err == nil && fileOf(&projector.Session{Subject: sub, Ledger: o.Ledger()}) == name
}

// snapshotFile is the file to import.
type snapshotFile struct {
	sessiondir.Folder
	*sessiondir.File
	written events.Timestamp // time of the last write

	content chat.Snapshot
	exact   bool // the state of a session renders the file
	old     bool // some messages have shapes of older writers
}

// List implements sessiondir.Store. It reads the file.
func (st store) List(ctx context.Context, at sessiondir.Folder) (*snapshotFile, error) {
	f := st.one
	if f == nil {
		var err error
		if f, err = read(at, at.File); err != nil {
			return nil, err
		}
	}
	f.Folder = at
	if _, whole := idOf(f.Full); !whole && at.In.Options.Part {
		if sub, ok := st.Named(ctx, at.In.Target, f.Full); ok {
			f.ID = sub.ID
		}
	}
	f.Files = []*sessiondir.File{f.File}
	if err := f.parse(); err != nil {
		f.malformed(err)
		f.Files = nil
	}
	return f, nil
}

// read reads a file of the storage for an entry.
func read(at sessiondir.Folder, full string) (f *snapshotFile, err error) {
	f = &snapshotFile{Folder: at}
	if f.File, err = f.Tree.File(full); err != nil {
		return nil, err
	}
	if limit := sessiondir.WholeLimit(f.In.Target); f.Size > limit {
		return nil, &fs.PathError{Op: "read", Path: at.File, Err: fmt.Errorf("%d bytes, at most %d are read", f.Size, limit)}
	}
	if f.written, err = f.Tree.Oldest(f.File); err != nil {
		return nil, err
	}
	if f.Data, err = f.Tree.Read(f.File, math.MaxInt64); err != nil {
		return nil, err
	}
	f.Size, f.Sum = int64(len(f.Data)), sessiondir.SumOf(f.Data)
	f.Path, f.Full = formatKey, at.File
	return f, nil
}

// parse parses the snapshot. Positions count from the beginning of the file.
func (f *snapshotFile) parse() error {
	var err error
	if f.content, f.old, err = chat.ParseAny(bytes.TrimPrefix(f.Data, []byte(sessiondir.BOM))); err != nil {
		return err
	}
	f.Format, f.exact = spelling(f.Data, f.content)
	f.exact = f.exact && !f.old
	f.Format.Mode = f.Mode
	return nil
}

func (f *snapshotFile) malformed(err error) {
	if d, ok := errors.AsType[*chat.DecodeError](err); ok && d.Line > 0 {
		f.In.Problem(f.Full, d.Line, fmt.Sprintf("column %d: %v", d.Column, d.Err))
		return
	}
	f.In.Problem(f.Full, 0, err.Error())
}

// Birth implements sessiondir.Found.
func (f *snapshotFile) Birth() string { return "" }

// Scan implements sessiondir.Found. List has read the file.
func (f *snapshotFile) Scan(context.Context, view) error { return nil }

// Same implements sessiondir.Found.
func (f *snapshotFile) Same(ctx context.Context, v view, _ string) (bool, error) {
	o, err := v.file()
	if err != nil || o.Path != f.Full && utf8.ValidString(f.Full) || o.Moved || o.Format.Mode != f.Mode {
		return false, nil //nolint:nilerr // the layout cannot render it, so the file differs
	}
	return o.Holds(ctx, f.Sum)
}

// Finish implements sessiondir.Found.
func (f *snapshotFile) Finish() {
	f.In.Report.Files.Add(sessiondir.WayOf(!f.exact, f.Format))
	if f.old {
		f.In.Report.Notes = append(f.In.Report.Notes, layouts.Problem{File: f.Full, Reason: "some messages have the shape of an older version: the session has them in the current one, the file is kept whole"})
	}
}
