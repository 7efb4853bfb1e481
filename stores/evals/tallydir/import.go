package tallydir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/foreign"
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
	in, err := foreign.NewIntake(target, stamp, at, o)
	if err != nil {
		return formats.Report{}, err
	}
	defer in.Tree.Root.Close()
	im := importer{Intake: in}
	err = im.run(ctx, at.Single)
	im.Report.Root = im.Root
	return im.Report, err
}

// importer imports a root, or one of its conversations.
type importer struct {
	*foreign.Intake
	turns *turns // among its conversations; nil before they are begun
}

func (im importer) run(ctx context.Context, single string) error {
	names, err := im.folders(single)
	if err != nil {
		return err
	}
	im.Expect(len(names))
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = foreign.IDOf(name)
	}
	if err := im.Know(ctx, ids, func(n int) string { return im.birthOf(names[n]) }); err != nil {
		return err
	}
	if err := im.conversations(ctx, names); err != nil {
		return err
	}
	if single != "" || len(im.Options.Only) > 0 {
		return ctx.Err()
	}
	return im.rootFiles(ctx)
}

// conversations imports several at the same time: while one waits for the disk,
// others are read. What they report is put together in the order of their names.
func (im importer) conversations(ctx context.Context, names []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var next atomic.Int64
	reports, errs := make([]formats.Report, len(names)), make([]error, len(names))
	turns := newTurns()
	for range min(most, len(names)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
				one := importer{im.Part(), turns}
				if errs[i] = one.folder(ctx, names[i]); errs[i] != nil {
					stop()
				}
				reports[i] = one.Report
			}
		})
	}
	group.Wait()
	for _, r := range reports {
		im.Report.Add(r)
	}
	return firstCause(errs)
}

// firstCause returns the first error that is not what another one ended.
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
func (im importer) folders(single string) ([]string, error) {
	if single != "" {
		return []string{single}, nil
	}
	entries, err := im.Tree.Entries(conversations)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && (len(im.Options.Only) == 0 || slices.Contains(im.Options.Only, e.Name()) || slices.Contains(im.Options.Only, foreign.IDOf(e.Name()))) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// birthOf reads what a folder says of its beginning.
func (im importer) birthOf(name string) string {
	f := &folder{tree: im.Tree, limit: im.limit(), name: name}
	s := &source{path: metaName, full: path.Join(conversations, name, metaName), place: place{part: partMeta}}
	if f.scanJSON(s) != nil {
		return ""
	}
	return f.birth
}

// limit is how long a value may be: the event around it must fit too.
func (im importer) limit() int { return int(foreign.WholeLimit(im.Target)) - 64<<10 }

// folder imports one conversation.
func (im importer) folder(ctx context.Context, name string) error {
	err := foreign.Retry(ctx, func(again bool) error {
		f := &folder{tree: im.Tree, limit: im.limit(), name: name}
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
		release, err := im.turns.hold(ctx, f.size)
		if err != nil {
			return err
		}
		defer release()
		return im.session(ctx, f, again)
	})
	return im.Settle(ctx, path.Join(conversations, name), err)
}

// identify finds the id of the session that a folder is.
func (im importer) identify(f *folder) error {
	f.id = foreign.IDOf(f.name)
	if formats.IsShortened(f.name) {
		f.id = im.fullID(f)
	}
	if other := formats.FileName(f.id); other != f.name {
		if info, err := im.Tree.Root.Lstat(path.Join(conversations, other)); err == nil && info.IsDir() {
			return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q and %q are folders of the same session", f.name, other)}
		}
	}
	return events.Session(im.Target.Namespace(), f.id).Validate()
}

// session brings one scanned folder in.
func (im importer) session(ctx context.Context, f *folder, again bool) error {
	v := view{src: im.Target, s: projector.NewSession(events.Session(im.Target.Namespace(), f.id))}
	if im.There[f.id] || again {
		s, err := im.Load(ctx, f.id)
		if err != nil {
			return err
		}
		v.s = s
	}
	if err := im.turns.scan(ctx, func() error { return f.scan(v.s.Threads) }); err != nil {
		return err
	}
	fresh := v.s.Offset() == 0
	if !fresh {
		differing, err := v.differing(ctx, f)
		if err != nil {
			return err
		}
		if len(differing) == 0 {
			im.finish(f, &im.Report.Unchanged)
			return nil
		}
	}
	p, err := makePlan(ctx, v, f, im.Origin(v.s, f.birth))
	if err != nil {
		return err
	}
	reason, err := im.Refusal(ctx, v.s, f.birth, func(since map[string]bool) bool { return contradicts(since, p) })
	if err != nil || reason != "" {
		im.Refuse(f.id, path.Join(conversations, f.name), reason)
		return err
	}
	p.recall = fresh && f.small() && !im.Options.DryRun
	added, err := p.apply(ctx, im.Target, im.Options.DryRun, im.Added)
	if err == nil && !im.Options.DryRun {
		err = im.verify(ctx, f, p)
	}
	if err != nil {
		return err
	}
	switch {
	case fresh:
		im.finish(f, &im.Report.Added)
	case added == 0:
		im.finish(f, &im.Report.Unchanged) // somebody else brought it in meanwhile
	default:
		im.finish(f, &im.Report.Changed)
	}
	return nil
}

// finish reports a conversation that was dealt with.
func (im importer) finish(f *folder, outcome *int) {
	im.Skipped(f.links...)
	if outcome == nil {
		return
	}
	*outcome++
	im.Report.Sessions++
	for _, s := range f.files {
		im.Report.Problems = append(im.Report.Problems, s.issues...)
		im.count(s)
	}
}

func (im importer) count(s *source) {
	way := formats.Exact
	switch {
	case !s.exact():
		way = formats.Whole
	case s.format.Derived:
		way = formats.Derived
	}
	im.Report.Files.Add(way)
	im.Read(s.size)
}

// rootFiles keeps the files that belong to no conversation, and takes away those
// that are gone.
func (im importer) rootFiles(ctx context.Context) error {
	seen := make(map[string]bool)
	for _, dir := range []string{".", conversations} {
		entries, err := im.Tree.Entries(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			full := path.Join(dir, e.Name())
			switch {
			case e.IsDir():
				if dir == "." && e.Name() != conversations {
					im.Report.Notes = append(im.Report.Notes, formats.Problem{File: full, Reason: "a folder that is not part of the layout: not imported"})
				}
			case !e.Type().IsRegular():
				im.Skipped(full)
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

func (im importer) rootFile(ctx context.Context, e fs.DirEntry, full string) error {
	s, err := newSource(e, full, full)
	if err == nil {
		err = (&folder{tree: im.Tree}).scanWhole(s)
	}
	if err != nil {
		im.Problem(full, 0, err.Error())
		return nil
	}
	doc := documentOf(im.Target.Namespace(), im.Root, full)
	have, err := foreign.Load(ctx, im.Target, doc)
	if err != nil {
		return err
	}
	if have.Exists && have.Sum != s.sum && have.Meta.Attributes[foreign.AttrMarker] != im.Marker && !im.Adopted && !im.Options.Merge {
		im.Problem(full, 0, fmt.Sprintf("the store has another file of this name, from another folder called %q: %s", im.Root, foreign.WayOut))
		return nil
	}
	n, err := stamp.PutDocument(ctx, im.Target, foreign.WholeFile{Doc: doc, Meta: docMeta(im.Root, im.Marker, s), Size: s.size, Sum: s.sum,
		Content: func() (io.ReadCloser, error) { return im.Tree.Open(full) }}, im.Options.DryRun)
	if err != nil && !foreign.IsOwnFault(err) {
		return err
	}
	if err != nil {
		im.Problem(full, 0, err.Error())
	}
	im.Added(n)
	im.count(s)
	return nil
}

// dropRootFiles deletes the documents of files that this folder had.
func (im importer) dropRootFiles(ctx context.Context, seen map[string]bool) error {
	for info, err := range im.Target.Subjects(ctx, events.KindFile) {
		if err != nil {
			return err
		}
		if !isRootFile(info.Subject.ID, im.Root) {
			continue
		}
		have, err := foreign.Load(ctx, im.Target, info.Subject)
		if err != nil {
			return err
		}
		if !have.Exists || seen[rootPath(have, im.Root)] || have.Meta.Attributes[foreign.AttrMarker] != im.Marker {
			continue
		}
		n, err := stamp.DeleteDocument(ctx, im.Target, info.Subject, im.Options.DryRun)
		if err != nil {
			return err
		}
		im.Added(n)
	}
	return ctx.Err()
}
