package ailoopdir

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
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
	im := &importer{target: target, o: o}
	err := im.open(path)
	if err == nil && im.wanted() {
		err = im.run(ctx)
	}
	return im.report, err
}

type importer struct {
	target   formats.Target
	o        formats.ImportOptions
	f        *snapshotFile
	report   formats.Report
	progress formats.Progress
}

// snapshotFile is the file to import.
type snapshotFile struct {
	path    string // absolute
	name    string // of the file
	id      string // of the session
	root    string // name of the folder
	marker  string // hash of the place
	mode    int64
	written events.Timestamp // when the file was written last

	data    []byte
	content chat.Snapshot
	format  events.FileFormat
	exact   bool // the state of a session renders the file
	old     bool // some messages have shapes of older writers
}

func (im *importer) open(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("ailoop: %s: is not a file: %w", path, formats.ErrUnknownLayout)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return err
	}
	f := &snapshotFile{path: abs, name: filepath.Base(abs), root: filepath.Base(filepath.Dir(abs)), marker: foreign.SumOf([]byte(real))[:16],
		mode: formats.ModeOf(info.Mode().Perm()), written: events.TimestampOf(info.ModTime())}
	if !formats.IsFileName(f.root) || f.root == string(filepath.Separator) || !utf8.ValidString(f.root) {
		f.root = "root"
	}
	f.id, _ = idOf(f.name)
	im.f, im.report.Root, im.progress.Of = f, f.root, 1
	if limit := foreign.WholeLimit(im.target); info.Size() > limit {
		return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes, at most %d are read", info.Size(), limit)}
	}
	f.data, err = os.ReadFile(abs)
	return err
}

// wanted reports whether the session is among those asked for.
func (im *importer) wanted() bool {
	if len(im.o.Only) == 0 {
		return true
	}
	for _, id := range im.o.Only {
		if id == im.f.id || prefix+id == im.f.id {
			return true
		}
	}
	return false
}

// run imports the file, again if somebody else wrote to its session meanwhile.
func (im *importer) run(ctx context.Context) error {
	if err := im.f.parse(); err != nil {
		im.malformed(err)
		return nil
	}
	if err := events.Session(im.target.Namespace(), im.f.id).Validate(); err != nil {
		im.problem(0, err.Error())
		return nil
	}
	for try := 0; ; try++ {
		err := im.session(ctx)
		if err == nil || !foreign.IsRace(err) || try == foreign.MaxTries {
			if err != nil && ctx.Err() == nil && foreign.IsOwnFault(err) {
				im.problem(0, err.Error())
				return nil
			}
			return err
		}
		if err := foreign.Pause(ctx, try); err != nil {
			return err
		}
	}
}

// parse reads the snapshot. What is said of places counts from the beginning of
// the file.
func (f *snapshotFile) parse() error {
	var err error
	if f.content, f.old, err = chat.ParseAny(bytes.TrimPrefix(f.data, []byte(bom))); err != nil {
		return err
	}
	f.format, f.exact = spelling(f.data, f.content)
	f.exact = f.exact && !f.old
	f.format.Mode = f.mode
	return nil
}

func (im *importer) malformed(err error) {
	if d, ok := errors.AsType[*chat.DecodeError](err); ok && d.Line > 0 {
		im.problem(d.Line, fmt.Sprintf("column %d: %v", d.Column, d.Err))
		return
	}
	im.problem(0, err.Error())
}

func (im *importer) problem(line int, reason string) {
	im.report.Problems = append(im.report.Problems, formats.Problem{File: im.f.name, Line: line, Reason: reason})
}

// load returns the session, an empty one if it does not exist.
func (im *importer) load(ctx context.Context) (view, error) {
	sub := events.Session(im.target.Namespace(), im.f.id)
	s, err := im.target.Loader().Session(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		s, err = projector.NewSession(sub), nil
	}
	return view{im.target, s}, err
}

// session brings the file in.
func (im *importer) session(ctx context.Context) error {
	v, err := im.load(ctx)
	if err != nil {
		return err
	}
	fresh := v.s.Offset() == 0
	if !fresh {
		if same, err := im.same(ctx, v); same || err != nil {
			if err == nil {
				im.finish(&im.report.Unchanged)
			}
			return err
		}
	}
	p, reason, err := im.plan(ctx, v)
	if err != nil {
		return err
	}
	if reason != "" {
		im.report.Sessions++
		im.report.Refused = append(im.report.Refused, im.f.id)
		im.problem(0, reason)
		return nil
	}
	added, err := p.apply(ctx)
	if err == nil && !im.o.DryRun {
		err = im.verify(ctx)
	}
	if err != nil {
		return err
	}
	switch {
	case fresh:
		im.finish(&im.report.Added)
	case added == 0:
		im.finish(&im.report.Unchanged)
	default:
		im.finish(&im.report.Changed)
	}
	return nil
}

// same reports whether the session gives the file back as it is.
func (im *importer) same(ctx context.Context, v view) (bool, error) {
	b, err := v.file()
	if err != nil || fileOf(v.s) != im.f.name && utf8.ValidString(im.f.name) || b.moved || b.format.Mode != im.f.mode {
		return false, nil //nolint:nilerr // what the layout cannot render is not the file
	}
	var have bytes.Buffer
	if err := v.write(ctx, b, &have); err != nil {
		return false, err
	}
	return bytes.Equal(have.Bytes(), im.f.data), nil
}

// verify compares what the store has now with the file.
func (im *importer) verify(ctx context.Context) error {
	v, err := im.load(ctx)
	if err != nil {
		return err
	}
	same, err := im.same(ctx, v)
	if err == nil && !same {
		im.problem(0, "does not come out of the store as it is: the session changed while it was imported")
	}
	return err
}

// finish reports the session.
func (im *importer) finish(outcome *int) {
	*outcome++
	im.report.Sessions++
	im.report.Bytes += int64(len(im.f.data))
	way := formats.Exact
	if !im.f.exact {
		way = formats.Whole
	}
	im.report.Files.Add(way)
	if im.f.old {
		im.report.Notes = append(im.report.Notes, formats.Problem{File: im.f.name, Reason: "some messages have the shapes of an older writer: the session has them in today's, the file is kept whole"})
	}
	im.progress.Sessions, im.progress.Files, im.progress.Bytes = 1, 1, int64(len(im.f.data))
	im.tell()
}

// added counts events as they go in.
func (im *importer) added(n int) {
	im.report.Events += n
	im.progress.Events += n
	im.tell()
}

func (im *importer) tell() {
	if im.o.Progress != nil {
		im.o.Progress(im.progress)
	}
}

// whole describes the file as a document.
func (im *importer) whole(doc events.Subject, root string) foreign.WholeFile {
	sum := foreign.SumOf(im.f.data)
	attributes := map[string]string{foreign.AttrRoot: root, foreign.AttrPath: foreign.KeyOf(im.f.name), foreign.AttrMarker: im.f.marker, foreign.AttrSHA256: sum}
	if im.f.mode != 0 {
		attributes[foreign.AttrMode] = foreign.FormatMode(im.f.mode)
	}
	meta := events.DocMeta{Attributes: attributes, Links: []events.Link{{Rel: "session", To: events.Session(im.target.Namespace(), im.f.id).String()}}}
	return foreign.WholeFile{Doc: doc, Meta: meta, Size: int64(len(im.f.data)), Sum: sum,
		Content: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(im.f.data)), nil }}
}

// origin is what the session shall say of where it comes from. The first name of
// the root stays.
func (im *importer) origin(s *projector.Session) *events.Origin {
	o := &events.Origin{Format: Format, Root: im.f.root, Marker: im.f.marker}
	if have := s.Ledger.Origin(); have != nil && im.isSameOrigin(have) {
		o.Root = cmp.Or(have.Root, o.Root)
	}
	return o
}

func (im *importer) isSameOrigin(have *events.Origin) bool {
	return have.Format == Format && have.Marker == im.f.marker
}
