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
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Import brings a snapshot file into a store. It never writes into the folder.
//
// Importing again adds what has changed and nothing else. A session that exists
// already, differs from the file, and came from another place or was changed
// since its last import is refused, unless o.Merge, and left as it is. A file
// that is not a snapshot, or of another version, is a problem of the report, and
// nothing of it goes in. An error means that the store or the file could not be
// used.
func Import(ctx context.Context, target formats.Target, path string, o formats.ImportOptions) (formats.Report, error) {
	at, name, err := locate(path)
	if err != nil {
		return formats.Report{}, err
	}
	dir, err := formats.OpenDir(filepath.Dir(at.Root))
	if err != nil {
		return formats.Report{}, err
	}
	defer dir.Close()
	return sessiondir.ImportFiles(ctx, target, stamp, dir, formats.Root{Name: at.Name, Marker: at.Marker}, o, func(in *sessiondir.Intake) error {
		im := importer{in, &snapshotFile{}}
		in.Expect(1)
		if err := im.read(ctx, filepath.Base(at.Root), name); err != nil {
			return err
		}
		return im.run(ctx)
	})
}

// ImportFrom implements formats.Live. Each file of the storage is a snapshot; folders are left
// alone, and unless o.Part files that are not called so.
func (Layout) ImportFrom(ctx context.Context, target formats.Target, st formats.Storage, root formats.Root, o formats.ImportOptions) (formats.Report, error) {
	return sessiondir.ImportFiles(ctx, target, stamp, st, root, o, func(in *sessiondir.Intake) error {
		entries, err := in.Tree.Entries(".")
		if err != nil {
			return err
		}
		entries = slices.DeleteFunc(entries, func(e formats.Entry) bool { return e.Dir || !o.Part && !strings.HasSuffix(e.Name, suffix) })
		in.Expect(len(entries))
		for _, e := range entries {
			if sessiondir.IsOdd(e) {
				in.Skipped(e.Name)
				continue
			}
			im := importer{in, &snapshotFile{}}
			err := im.read(ctx, e.Name, e.Name)
			if err == nil {
				err = im.run(ctx)
			}
			if err := in.Spare(ctx, e.Name, err); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

type importer struct {
	*sessiondir.Intake
	f *snapshotFile
}

// snapshotFile is the file to import.
type snapshotFile struct {
	*sessiondir.File
	id      string           // of the session
	written events.Timestamp // when the file was written last

	content chat.Snapshot
	exact   bool // the state of a session renders the file
	old     bool // some messages have shapes of older writers
}

// locate finds the file that a path means, whatever links lead to it, and the name that it has
// there.
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
		return at, "", fmt.Errorf("ailoop: %s: is not a file: %w", path, formats.ErrUnknownLayout)
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

// read reads a file of the storage as one of a name.
func (im importer) read(ctx context.Context, full, name string) error {
	f := im.f
	var err error
	if f.File, err = im.Tree.File(full); err != nil {
		return err
	}
	if limit := sessiondir.WholeLimit(im.Target); f.Size > limit {
		return &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%d bytes, at most %d are read", f.Size, limit)}
	}
	if f.written, err = im.Tree.Oldest(f.File); err != nil {
		return err
	}
	if f.Data, err = im.Tree.Read(f.File, math.MaxInt64); err != nil {
		return err
	}
	f.Size, f.Sum = int64(len(f.Data)), sessiondir.SumOf(f.Data)
	f.Path, f.Full = name, name
	var whole bool
	if f.id, whole = idOf(name); !whole && im.Options.Part {
		if sub, ok := (Layout{}).Subject(ctx, im.Target, "", name); ok {
			f.id = sub.ID
		}
	}
	return nil
}

// run imports the file, if its session is among those asked for.
func (im importer) run(ctx context.Context) error {
	if !im.Wants(im.f.id) && !im.Wants(strings.TrimPrefix(im.f.id, prefix)) {
		return nil
	}
	if err := im.f.parse(); err != nil {
		im.malformed(err)
		return nil
	}
	err := events.Session(im.Target.Namespace(), im.f.id).Validate()
	if err == nil {
		err = sessiondir.Retry(ctx, func(bool) error { return im.session(ctx) })
	}
	return im.Settle(ctx, im.f.Path, err)
}

// parse reads the snapshot. What is said of places counts from the beginning of
// the file.
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

func (im importer) malformed(err error) {
	if d, ok := errors.AsType[*chat.DecodeError](err); ok && d.Line > 0 {
		im.Problem(im.f.Path, d.Line, fmt.Sprintf("column %d: %v", d.Column, d.Err))
		return
	}
	im.Problem(im.f.Path, 0, err.Error())
}

// session brings the file in.
func (im importer) session(ctx context.Context) error {
	s, err := im.Load(ctx, im.f.id)
	if err != nil {
		return err
	}
	v := view{im.Target, s}
	return im.Bring(ctx, s, sessiondir.Work{ID: im.f.id, Place: im.f.Path, Kind: events.KindHistory,
		Same: func() (bool, error) { return im.f.isFile(ctx, v) },
		Plan: func(origin *events.Origin) (sessiondir.Steps, error) {
			p, err := im.plan(v, origin)
			return sessiondir.Steps{Contradicts: p.contradicts, Apply: func() error {
				if err := p.apply(ctx); err != nil {
					return err
				}
				return im.verify(ctx)
			}}, err
		},
		Finish: im.finish,
	})
}

// isFile reports whether the session gives the file back as it is.
func (f *snapshotFile) isFile(ctx context.Context, v view) (bool, error) {
	o, err := v.file()
	if err != nil || o.Path != f.Path && utf8.ValidString(f.Path) || o.Moved || o.Format.Mode != f.Mode {
		return false, nil //nolint:nilerr // what the layout cannot render is not the file
	}
	return o.Holds(ctx, f.Sum)
}

// verify compares what the store has now with the file.
func (im importer) verify(ctx context.Context) error {
	s, err := im.Load(ctx, im.f.id)
	if err != nil {
		return err
	}
	same, err := im.f.isFile(ctx, view{im.Target, s})
	if err == nil && !same {
		im.Problem(im.f.Path, 0, "does not come out of the store as it is: the session changed while it was imported")
	}
	return err
}

// finish reports the session.
func (im importer) finish(outcome *int) {
	im.Finish(sessiondir.Folder{Files: []*sessiondir.File{im.f.File}}, outcome)
	im.Report.Files.Add(sessiondir.WayOf(!im.f.exact, im.f.Format))
	if im.f.old {
		im.Report.Notes = append(im.Report.Notes, formats.Problem{File: im.f.Path, Reason: "some messages have the shapes of an older writer: the session has them in today's, the file is kept whole"})
	}
}
