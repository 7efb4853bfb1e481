package layouts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// LiveRoot names the folder of sessions that were not imported, if an export has several roots.
const LiveRoot = "live"

// ExportOptions select the exported sessions: Session, or All.
type ExportOptions struct {
	Session  string             // id of one session
	State    *projector.Session // with Session: the state to export; default: the newest
	All      bool               // every session, and the files outside of sessions
	Root     string             // with All: only the root of this name
	Any      bool               // sessions of any kind and origin; with All, without a folder for each root
	Progress func(Progress)     // called often, by the exporting goroutine
}

// Export renders sessions into a storage, one at a time. It does not write files whose bytes are equal already, and
// deletes nothing. With All, a single root, or the chosen one, is written to the storage itself; several roots get a
// folder each. A single session without files in the layout is refused.
//
// For the namespace of personal settings, the error is an *events.PersonalError. If the session does not exist or the
// root has no sessions, it is projector.ErrNotFound. If something cannot be read or written, that is a problem of the
// report, and the export goes on.
func Export(ctx context.Context, src Source, layout Renderer, st Storage, o ExportOptions) (Report, error) {
	if src.Namespace() == events.PersonalNamespace {
		return Report{}, &events.PersonalError{Where: "an export"}
	}
	if p, ok := layout.(Planner); ok {
		var err error
		if layout, err = p.Planned(ctx, src); err != nil {
			return Report{}, err
		}
	}
	x := &exporting{src: src, layout: layout, st: st, o: o}
	if o.Session != "" {
		x.progress.Of = 1
		return x.report, errors.Join(x.single(ctx), ctx.Err())
	}
	if !o.All {
		panic("layouts: an export of nothing: want Session or All")
	}
	roots, err := x.roots(ctx)
	if err != nil {
		return x.report, err
	}
	if o.Root != "" && roots[o.Root] == nil {
		return x.report, fmt.Errorf("layouts: root %q: %w", o.Root, projector.ErrNotFound)
	}
	for _, root := range slices.Sorted(maps.Keys(roots)) {
		switch {
		case o.Root == root || o.Root == "" && len(roots) == 1:
			x.report.Root = root
			err = x.root(ctx, root, roots[root], "")
		case o.Root == "":
			err = x.root(ctx, root, roots[root], FileName(root)+"/")
		}
		if err != nil {
			return x.report, err
		}
	}
	return x.report, ctx.Err()
}

type exporting struct {
	src      Source
	layout   Renderer
	st       Storage
	o        ExportOptions
	report   Report
	progress Progress
}

// roots groups the ids of all sessions by root.
func (x *exporting) roots(ctx context.Context) (map[string][]string, error) {
	roots := make(map[string][]string)
	for subject, err := range x.src.Subjects(ctx, events.KindSession) {
		if err != nil {
			return nil, err
		}
		s, err := x.src.Loader().Session(ctx, subject.Subject, 0)
		err = projector.Tolerate(err)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			x.problem(subject.Subject.ID, err)
			continue
		}
		root, ok, err := x.rootOf(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			x.problem(subject.Subject.ID, err)
		case ok:
			roots[root] = append(roots[root], subject.Subject.ID)
			x.progress.Of++
		}
	}
	return roots, x.only(ctx, roots)
}

// only adds the root of a Rooted layout, if that has files.
func (x *exporting) only(ctx context.Context, roots map[string][]string) error {
	r, ok := x.layout.(Rooted)
	if !ok || x.o.Any || roots[r.Root()] != nil {
		return nil
	}
	there, err := r.HasFiles(ctx, x.src)
	if there {
		roots[r.Root()] = []string{}
	}
	return err
}

// rootOf returns the root of a session, and whether the layout has files for it: for sessions imported from this
// layout, and for the live sessions that it exports.
func (x *exporting) rootOf(ctx context.Context, s *projector.Session) (string, bool, error) {
	o := s.Ledger.Origin()
	switch {
	case x.o.Any:
		return LiveRoot, true, nil
	case o != nil && o.Root != "" && o.Format == x.layout.Name():
		return o.Root, true, nil
	case o != nil && o.Format != x.layout.Name():
		return "", false, nil
	}
	ok, err := exports(ctx, x.layout, s)
	if r, one := x.layout.(Rooted); one {
		return r.Root(), ok, err
	}
	return LiveRoot, ok, err
}

// Writes reports whether a layout has files for a session that it did not import.
func Writes(ctx context.Context, layout Renderer, s *projector.Session) (bool, error) {
	return exports(ctx, layout, s)
}

// exports reports whether a layout has files for a session that it did not import.
func exports(ctx context.Context, layout Renderer, s *projector.Session) (bool, error) {
	switch l := layout.(type) {
	case Picker:
		return l.Picks(ctx, s)
	case Chooser:
		return l.Exports(s.Ledger.Kind), nil
	}
	return s.Ledger.Kind == events.KindConversation, nil
}

func (x *exporting) root(ctx context.Context, root string, ids []string, prefix string) error {
	for _, id := range ids {
		if err := x.session(ctx, id, prefix); err != nil {
			return err
		}
	}
	for f, err := range x.layout.RootFiles(ctx, x.src, root) {
		if err := x.file(ctx, f, err, prefix); err != nil {
			return err
		}
	}
	return nil
}

// single exports one session, if the layout has files for it.
func (x *exporting) single(ctx context.Context) error {
	s := x.o.State
	if s == nil {
		var err error
		if s, err = x.load(ctx, x.o.Session); err != nil {
			return err
		}
	}
	o := s.Ledger.Origin()
	if back := o != nil && o.Format == x.layout.Name(); back || x.o.Any {
		return x.state(ctx, s, "")
	}
	switch ok, err := exports(ctx, x.layout, s); {
	case err != nil:
		return err
	case !ok:
		x.report.Refused = append(x.report.Refused, x.o.Session)
		x.problem(x.o.Session, fmt.Errorf("nothing was written: %s has no files for %s", x.layout.Name(), what(x.layout, s)))
		return nil
	}
	return x.state(ctx, s, "")
}

// what describes the sessions that a layout has no files for.
func what(layout Renderer, s *projector.Session) string {
	if _, ok := layout.(Picker); ok {
		return "this session: it does not come from there"
	}
	return "a session of kind " + s.Ledger.Kind
}

func (x *exporting) load(ctx context.Context, id string) (*projector.Session, error) {
	s, err := x.src.Loader().Session(ctx, events.Session(x.src.Namespace(), id), 0)
	return s, projector.Tolerate(err) // the export reports damaged records
}

func (x *exporting) session(ctx context.Context, id, prefix string) error {
	s, err := x.load(ctx, id)
	if err != nil {
		return err
	}
	return x.state(ctx, s, prefix)
}

// state exports a loaded session.
func (x *exporting) state(ctx context.Context, s *projector.Session, prefix string) error {
	id := s.Subject.ID
	for _, at := range s.Damaged {
		x.problem(prefix+FileName(id), &events.DamageError{Offset: at})
	}
	if n := erasedIn(s.Threads); n > 0 {
		x.report.Notes = append(x.report.Notes, Problem{File: prefix + FileName(id), Reason: fmt.Sprintf("turns whose content was erased, so that they are {}: %d", n)})
	}
	for f, err := range x.layout.Files(ctx, x.src, s) {
		if err := x.file(ctx, f, err, prefix); err != nil {
			return err
		}
	}
	x.report.Sessions++
	x.progress.Sessions++
	x.tell()
	return nil
}

// erasedIn counts the turns whose content was erased.
func erasedIn(threads projector.Threads) (n int) {
	for _, th := range threads {
		for i := range th.Turns {
			if th.Turns[i].Erased != "" {
				n++
			}
		}
	}
	return n
}

// file writes one file. It returns an error only if ctx is done.
func (x *exporting) file(ctx context.Context, f File, err error, prefix string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		x.problem(prefix+f.Path, err)
		return nil
	}
	f.Path = prefix + f.Path
	if f.Note != "" {
		x.report.Notes = append(x.report.Notes, Problem{File: f.Path, Reason: f.Note})
	}
	if f.Problem != "" {
		x.report.Problems = append(x.report.Problems, Problem{File: f.Path, Reason: f.Problem})
	}
	same, err := x.same(ctx, f)
	if err == nil && !same {
		err = x.st.Write(ctx, f.Path, f.Mode, f.Write)
	}
	switch {
	case err != nil:
		x.problem(f.Path, err)
	case same:
		x.report.Kept++
	default:
		x.report.Written++
	}
	if err == nil {
		x.report.Files.Add(f.Way)
	}
	x.progress.Files++
	x.tell()
	return ctx.Err()
}

func (x *exporting) problem(file string, err error) {
	x.report.Problems = append(x.report.Problems, Problem{File: file, Reason: err.Error()})
}

func (x *exporting) tell() {
	if x.o.Progress != nil {
		x.o.Progress(x.progress)
	}
}

// same reports whether the storage has the file with these bytes and this mode.
func (x *exporting) same(ctx context.Context, f File) (bool, error) {
	e, err := x.st.Stat(ctx, f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || e.Dir || e.Size < 0 || ModeOf(e.Mode) != ModeOf(f.Mode) {
		return false, err
	}
	r, err := x.st.Read(ctx, f.Path)
	if err != nil {
		return false, nil //nolint:nilerr // a file that cannot be read is written again
	}
	defer r.Close()
	c := &comparer{r: r}
	if err := f.Write(c); err != nil && !errors.Is(err, errDiffers) {
		return false, err
	}
	return c.equal(), nil
}

var errDiffers = errors.New("differs")

// comparer is a Writer that compares the written bytes with those of a Reader.
type comparer struct {
	r       io.Reader
	buf     []byte
	differs bool
}

func (c *comparer) Write(p []byte) (int, error) {
	if len(c.buf) < len(p) {
		c.buf = make([]byte, len(p))
	}
	have := c.buf[:len(p)]
	if _, err := io.ReadFull(c.r, have); err != nil || !bytes.Equal(have, p) {
		c.differs = true
		return 0, errDiffers
	}
	return len(p), nil
}

func (c *comparer) equal() bool {
	n, err := c.r.Read(make([]byte, 1))
	return !c.differs && n == 0 && errors.Is(err, io.EOF)
}
