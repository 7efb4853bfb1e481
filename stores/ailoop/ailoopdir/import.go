package ailoopdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/foreign"
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
	f, at, err := open(path, foreign.WholeLimit(target))
	if err != nil {
		return formats.Report{}, err
	}
	return foreign.ImportFile(target, stamp, at, o, func(in *foreign.Intake) error {
		return importer{in, f}.run(ctx)
	})
}

type importer struct {
	*foreign.Intake
	f *snapshotFile
}

// snapshotFile is the file to import.
type snapshotFile struct {
	*foreign.File
	id      string           // of the session
	written events.Timestamp // when the file was written last

	content chat.Snapshot
	exact   bool // the state of a session renders the file
	old     bool // some messages have shapes of older writers
}

func open(path string, limit int64) (*snapshotFile, foreign.Location, error) {
	at := foreign.Location{}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, at, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, at, err
	}
	if !info.Mode().IsRegular() {
		return nil, at, fmt.Errorf("ailoop: %s: is not a file: %w", path, formats.ErrUnknownLayout)
	}
	at = foreign.Location{Root: abs, Name: filepath.Base(filepath.Dir(abs))}
	if !utf8.ValidString(at.Name) {
		at.Name = ""
	}
	if at, err = at.Settled(); err != nil {
		return nil, at, err
	}
	if info.Size() > limit {
		return nil, at, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes, at most %d are read", info.Size(), limit)}
	}
	name := filepath.Base(abs)
	f := &snapshotFile{written: events.TimestampOf(info.ModTime())}
	f.id, _ = idOf(name)
	if f.File, err = foreign.Found(info, name, name); err != nil {
		return nil, at, err
	}
	f.Data, err = os.ReadFile(abs)
	f.Size, f.Sum = int64(len(f.Data)), foreign.SumOf(f.Data)
	return f, at, err
}

// run imports the file, if its session is among those asked for.
func (im importer) run(ctx context.Context) error {
	im.Expect(1)
	if !im.Wants(im.f.id) && !im.Wants(strings.TrimPrefix(im.f.id, prefix)) {
		return nil
	}
	if err := im.f.parse(); err != nil {
		im.malformed(err)
		return nil
	}
	err := events.Session(im.Target.Namespace(), im.f.id).Validate()
	if err == nil {
		err = foreign.Retry(ctx, func(bool) error { return im.session(ctx) })
	}
	return im.Settle(ctx, im.f.Path, err)
}

// parse reads the snapshot. What is said of places counts from the beginning of
// the file.
func (f *snapshotFile) parse() error {
	var err error
	if f.content, f.old, err = chat.ParseAny(bytes.TrimPrefix(f.Data, []byte(foreign.BOM))); err != nil {
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
	return im.Bring(ctx, s, foreign.Work{ID: im.f.id, Place: im.f.Path, Kind: events.KindHistory,
		Same: func() (bool, error) { return im.f.isFile(ctx, v) },
		Plan: func(origin *events.Origin) (foreign.Plan, error) {
			p, err := im.plan(v, origin)
			return foreign.Plan{Contradicts: p.contradicts, Apply: func() error {
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
	im.Finish(foreign.Folder{Files: []*foreign.File{im.f.File}}, outcome)
	im.Report.Files.Add(foreign.WayOf(!im.f.exact, im.f.Format))
	if im.f.old {
		im.Report.Notes = append(im.Report.Notes, formats.Problem{File: im.f.Path, Reason: "some messages have the shapes of an older writer: the session has them in today's, the file is kept whole"})
	}
}
