package tallydir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/projector"
)

// Import brings a folder into a store: a folder that holds conversations/ or
// .tally/conversations/, or the folder of one conversation. It never writes into
// the folder.
//
// Importing again adds what has changed and nothing else. A session that exists
// already, differs from the folder, and came from another place or was changed
// since its last import is refused, unless o.Merge; it is left as it is and the
// rest goes in. Malformed pieces are problems of the report, with file and line.
// An error means that the import ended early; importing again goes on from there.
func Import(ctx context.Context, target formats.Target, path string, o formats.ImportOptions) (formats.Report, error) {
	at, err := locate(path)
	if err != nil {
		return formats.Report{}, err
	}
	root, err := os.OpenRoot(at.root)
	if err != nil {
		return formats.Report{}, err
	}
	defer root.Close()
	im := &importer{target: target, o: o, tree: foreign.Tree{Root: root}, root: foreign.KeyOf(at.name), marker: at.marker, progress: &progress{tell: o.Progress}}
	err = im.run(ctx, at.single)
	im.report.Root = im.root
	return im.report, err
}

// importer imports a root, or for it one conversation after the other: those that
// work at the same time have a report each, and everything else in common.
type importer struct {
	target   formats.Target
	o        formats.ImportOptions
	tree     foreign.Tree
	root     string // name under which the folder is exported
	marker   string
	adopted  bool            // root is the name of an earlier import of this folder
	there    map[string]bool // ids of the sessions that existed in the beginning
	report   formats.Report
	progress *progress
}

// progress is told of by one at a time.
type progress struct {
	mu   sync.Mutex // guards now, and calls of tell
	now  formats.Progress
	tell func(formats.Progress)
}

func (p *progress) add(change func(*formats.Progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
	if p.tell != nil {
		p.tell(p.now)
	}
}

func (im *importer) run(ctx context.Context, single string) error {
	names, err := im.folders(single)
	if err != nil {
		return err
	}
	im.progress.now.Of = len(names)
	if err := im.known(ctx, names); err != nil {
		return err
	}
	if err := im.conversations(ctx, names); err != nil {
		return err
	}
	if single != "" || len(im.o.Only) > 0 {
		return ctx.Err()
	}
	return im.rootFiles(ctx)
}

// most bounds the conversations that are imported at the same time: each may hold
// a small folder in memory.
const most = 4

// conversations imports several at the same time: while one waits for the disk,
// others are read. What they report is put together in the order of their names.
func (im *importer) conversations(ctx context.Context, names []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var next atomic.Int64
	reports, errs := make([]formats.Report, len(names)), make([]error, len(names))
	for range min(most, len(names)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
				one := *im
				one.report = formats.Report{}
				if errs[i] = one.folder(ctx, names[i]); errs[i] != nil {
					stop()
				}
				reports[i] = one.report
			}
		})
	}
	group.Wait()
	for _, r := range reports {
		im.report.Add(r)
	}
	return firstCause(errs)
}

// firstCause gives the first error that is not what another one ended.
func firstCause(errs []error) error {
	var ended error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		ended = cmp.Or(ended, err)
	}
	return ended
}

// folders lists the conversations to import.
func (im *importer) folders(single string) ([]string, error) {
	if single != "" {
		return []string{single}, nil
	}
	entries, err := im.tree.Entries(conversations)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && (len(im.o.Only) == 0 || slices.Contains(im.o.Only, e.Name()) || slices.Contains(im.o.Only, foreign.IDOf(e.Name()))) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// known finds out which sessions there are, and under which name this folder was
// imported before: the first name stays.
func (im *importer) known(ctx context.Context, names []string) error {
	im.there = make(map[string]bool)
	for info, err := range im.target.Subjects(ctx, events.KindSession) {
		if err != nil {
			return err
		}
		im.there[info.Subject.ID] = true
	}
	for _, name := range names {
		if !im.there[foreign.IDOf(name)] {
			continue
		}
		s, err := im.load(ctx, foreign.IDOf(name))
		if err != nil {
			return err
		}
		if have := s.Ledger.Origin(); have != nil && im.isSameOrigin(have, im.birthOf(name)) && have.Root != "" {
			im.root, im.adopted = have.Root, true
			return nil
		}
	}
	return nil
}

// birthOf reads what a folder says of its beginning.
func (im *importer) birthOf(name string) string {
	f := &folder{tree: im.tree, limit: im.limit(), name: name}
	s := &source{path: metaName, full: path.Join(conversations, name, metaName), place: place{part: partMeta}}
	if f.scanJSON(s) != nil {
		return ""
	}
	return f.birth
}

// limit is how long a value may be: the event around it must fit too.
func (im *importer) limit() int { return int(foreign.WholeLimit(im.target)) - 64<<10 }

func (im *importer) isSameOrigin(have *events.Origin, birth string) bool {
	return have.Format == Format && (have.Marker == im.marker || birth != "" && have.Birth == birth)
}

// load gives a session, an empty one if it does not exist.
func (im *importer) load(ctx context.Context, id string) (*projector.Session, error) {
	sub := events.Session(im.target.Namespace(), id)
	s, err := im.target.Loader().Session(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return projector.NewSession(sub), nil
	}
	return s, err
}

// folder imports one conversation. What is wrong with its files is reported and
// does not end the import; what is wrong with the store does.
func (im *importer) folder(ctx context.Context, name string) error {
	err := im.try(ctx, name)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case foreign.IsOwnFault(err):
		im.problem(path.Join(conversations, name), 0, err.Error())
	default:
		return fmt.Errorf("%s: %w", path.Join(conversations, name), err)
	}
	im.progress.add(func(p *formats.Progress) { p.Sessions++ })
	return nil
}

// try imports a conversation, again if somebody else wrote to it meanwhile.
func (im *importer) try(ctx context.Context, name string) error {
	for try := 0; ; try++ {
		f := &folder{tree: im.tree, limit: im.limit(), name: name}
		if err := f.list(""); err != nil {
			return err
		}
		if len(f.files) == 0 {
			im.finish(f, nil)
			return nil
		}
		if err := im.identify(f); err != nil {
			return err
		}
		err := im.session(ctx, f, try > 0)
		if err == nil || !foreign.IsRace(err) || try == foreign.MaxTries {
			return err
		}
		if err := foreign.Pause(ctx, try); err != nil {
			return err
		}
	}
}

// identify finds the id of the session that a folder is.
func (im *importer) identify(f *folder) error {
	f.id = foreign.IDOf(f.name)
	if formats.IsShortened(f.name) {
		f.id = im.fullID(f)
	}
	if other := formats.FileName(f.id); other != f.name {
		if info, err := im.tree.Root.Lstat(path.Join(conversations, other)); err == nil && info.IsDir() {
			return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q and %q are folders of the same session", f.name, other)}
		}
	}
	return events.Session(im.target.Namespace(), f.id).Validate()
}

// session brings one scanned folder in.
func (im *importer) session(ctx context.Context, f *folder, again bool) error {
	v := view{src: im.target, s: projector.NewSession(events.Session(im.target.Namespace(), f.id))}
	if im.there[f.id] || again {
		s, err := im.load(ctx, f.id)
		if err != nil {
			return err
		}
		v.s = s
	}
	if err := f.scan(v.s.Threads); err != nil {
		return err
	}
	fresh := v.s.Offset() == 0
	if !fresh {
		differing, err := v.differing(ctx, f)
		if err != nil {
			return err
		}
		if len(differing) == 0 {
			im.finish(f, &im.report.Unchanged)
			return nil
		}
	}
	p, err := makePlan(ctx, v, f, im.origin(v.s, f))
	if err != nil {
		return err
	}
	if reason, err := im.refusal(ctx, p); err != nil || reason != "" {
		im.refuse(f, reason)
		return err
	}
	added, err := p.apply(ctx, im.target, im.o.DryRun, im.added)
	if err == nil && !im.o.DryRun {
		err = im.verify(ctx, f, fresh)
	}
	if err != nil {
		return err
	}
	switch {
	case fresh:
		im.finish(f, &im.report.Added)
	case added == 0:
		im.finish(f, &im.report.Unchanged) // somebody else brought it in meanwhile
	default:
		im.finish(f, &im.report.Changed)
	}
	return nil
}

// added counts events as they go in.
func (im *importer) added(n int) {
	im.report.Events += n
	im.progress.add(func(p *formats.Progress) { p.Events += n })
}

// finish reports a conversation that was dealt with.
func (im *importer) finish(f *folder, outcome *int) {
	for _, link := range f.links {
		im.problem(link, 0, "is neither a file nor a folder: not followed, not imported")
	}
	if outcome == nil {
		return
	}
	*outcome++
	im.report.Sessions++
	for _, s := range f.files {
		im.report.Problems = append(im.report.Problems, s.issues...)
		im.count(s)
	}
}

func (im *importer) count(s *source) {
	way := formats.Exact
	switch {
	case !s.exact():
		way = formats.Whole
	case s.format.Derived:
		way = formats.Derived
	}
	im.report.Files.Add(way)
	im.report.Bytes += s.size
	im.progress.add(func(p *formats.Progress) { p.Files, p.Bytes = p.Files+1, p.Bytes+s.size })
}

func (im *importer) problem(file string, line int, reason string) {
	im.report.Problems = append(im.report.Problems, formats.Problem{File: file, Line: line, Reason: reason})
}

// rootFiles keeps the files that belong to no conversation, and takes away those
// that are gone.
func (im *importer) rootFiles(ctx context.Context) error {
	seen := make(map[string]bool)
	for _, dir := range []string{".", conversations} {
		entries, err := im.tree.Entries(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			full := path.Join(dir, e.Name())
			switch {
			case e.IsDir():
				if dir == "." && e.Name() != conversations {
					im.report.Notes = append(im.report.Notes, formats.Problem{File: full, Reason: "a folder that is no part of the layout: not imported"})
				}
			case !e.Type().IsRegular():
				im.problem(full, 0, "is neither a file nor a folder: not followed, not imported")
			default:
				seen[full] = true
				if err := im.rootFile(ctx, e, full); err != nil {
					return err
				}
			}
		}
	}
	return im.dropRootFiles(ctx, seen)
}

func (im *importer) rootFile(ctx context.Context, e fs.DirEntry, full string) error {
	s, err := newSource(e, full, full)
	if err == nil {
		err = (&folder{tree: im.tree}).scanWhole(s)
	}
	if err != nil {
		im.problem(full, 0, err.Error())
		return nil
	}
	doc := documentOf(im.target.Namespace(), im.root, full)
	have, err := foreign.Load(ctx, im.target, doc)
	if err != nil {
		return err
	}
	if have.Exists && have.Sum != s.sum && have.Meta.Attributes[foreign.AttrMarker] != im.marker && !im.adopted && !im.o.Merge {
		im.problem(full, 0, fmt.Sprintf("the store has another file of this name, from another folder called %q: %s", im.root, foreign.WayOut))
		return nil
	}
	n, err := stamp.PutDocument(ctx, im.target, foreign.WholeFile{Doc: doc, Meta: docMeta(im.root, im.marker, s), Size: s.size, Sum: s.sum,
		Content: func() (io.ReadCloser, error) { return im.tree.Open(full) }}, im.o.DryRun)
	if err != nil && !foreign.IsOwnFault(err) {
		return err
	}
	if err != nil {
		im.problem(full, 0, err.Error())
	}
	im.added(n)
	im.count(s)
	return nil
}

// dropRootFiles deletes the documents of files that this folder had.
func (im *importer) dropRootFiles(ctx context.Context, seen map[string]bool) error {
	for info, err := range im.target.Subjects(ctx, events.KindFile) {
		if err != nil {
			return err
		}
		if !isRootFile(info.Subject.ID, im.root) {
			continue
		}
		have, err := foreign.Load(ctx, im.target, info.Subject)
		if err != nil {
			return err
		}
		if !have.Exists || seen[rootPath(have, im.root)] || have.Meta.Attributes[foreign.AttrMarker] != im.marker {
			continue
		}
		n, err := stamp.DeleteDocument(ctx, im.target, info.Subject, im.o.DryRun)
		if err != nil {
			return err
		}
		im.added(n)
	}
	return ctx.Err()
}
