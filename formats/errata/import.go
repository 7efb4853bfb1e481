package errata

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/projector"
)

// Import brings a folder into a store: errata's data folder, a folder that holds
// it as data/, or the folder of one session. It never writes into the folder.
//
// Importing again adds what has changed and nothing else. A session that exists
// already, differs from the folder, and came from another place or was changed
// since its last import is refused, unless o.Merge; it is left as it is and the
// rest goes in. Files that cannot be read are problems of the report, with file
// and line; they are kept as they are, and nothing that the store has is taken
// away for them. An error means that the import ended early; importing again goes
// on from there.
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
	im := &importer{target: target, o: o, tree: foreign.Tree{Root: root}, root: foreign.KeyOf(at.name), marker: at.marker, there: make(map[string]bool)}
	if o.DryRun {
		im.dry = foreign.NewRehearsal(target)
		im.target = im.dry
	}
	err = im.run(ctx, at.single)
	im.report.Root = im.root
	return im.report, err
}

type importer struct {
	target   formats.Target
	dry      *foreign.Rehearsal // of a dry run
	o        formats.ImportOptions
	tree     foreign.Tree
	root     string // name under which the folder is exported
	marker   string
	adopted  bool            // root is the name of an earlier import of this folder
	there    map[string]bool // ids of the sessions that existed in the beginning
	report   formats.Report
	progress formats.Progress
}

func (im *importer) run(ctx context.Context, single string) error {
	ids, err := im.units(single)
	if err != nil {
		return err
	}
	im.progress.Of = len(ids)
	if err := im.known(ctx, ids); err != nil {
		return err
	}
	for _, id := range ids {
		if err := im.unit(ctx, id); err != nil {
			return err
		}
	}
	if single != "" || len(im.o.Only) > 0 {
		return ctx.Err()
	}
	return im.rootFiles(ctx)
}

// unitName is a session to import: its id and its folder.
type unitName struct{ id, dir string }

// units lists the sessions to import.
func (im *importer) units(single string) ([]unitName, error) {
	if single != "" {
		return []unitName{{foreign.IDOf(single), path.Join(sessions, single)}}, nil
	}
	var list []unitName
	entries, err := im.tree.Entries(sessions)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, unitName{foreign.IDOf(e.Name()), path.Join(sessions, e.Name())})
		}
	}
	for _, id := range []string{headlessID, historyID, promptsID} {
		if im.isBeside(beside[id]) {
			list = append(list, unitName{id: id})
		}
	}
	return slices.DeleteFunc(list, func(u unitName) bool { return len(im.o.Only) > 0 && !slices.Contains(im.o.Only, u.id) }), nil
}

// isBeside reports whether a file of the root is a session of its own.
func (im *importer) isBeside(name string) bool {
	info, err := im.tree.Root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if name != historyName {
		return name == promptsName || name == checkpointName
	}
	r, err := im.tree.Open(name)
	if err != nil {
		return false
	}
	defer r.Close()
	head := make([]byte, 4<<10)
	n, _ := r.Read(head)
	return historyHead.Match(head[:n])
}

// known finds out which sessions there are, and under which name this folder was
// imported before: the first name stays.
func (im *importer) known(ctx context.Context, ids []unitName) error {
	for info, err := range im.target.Subjects(ctx, events.KindSession) {
		if err != nil {
			return err
		}
		im.there[info.Subject.ID] = true
	}
	for _, u := range ids {
		if !im.there[u.id] {
			continue
		}
		s, err := im.load(ctx, u.id)
		if err != nil {
			return err
		}
		if have := s.Ledger.Origin(); have != nil && im.isSameOrigin(have, im.birthOf(u)) && have.Root != "" {
			im.root, im.adopted = have.Root, true
			return nil
		}
	}
	return nil
}

// birthOf reads what a folder says of its beginning.
func (im *importer) birthOf(name unitName) string {
	u := im.newUnit(name)
	if name.dir == "" || u.add(metadataName, path.Join(name.dir, metadataName)) != nil {
		return ""
	}
	s := u.files[0]
	if s.part != partMetadata || u.scanFile(s) != nil {
		return ""
	}
	return u.birth
}

func (im *importer) newUnit(name unitName) *unit {
	return &unit{tree: im.tree, limit: int(foreign.WholeLimit(im.target)) - 64<<10, id: name.id, dir: name.dir}
}

func (im *importer) isSameOrigin(have *events.Origin, birth string) bool {
	if have.Format != Format {
		return false
	}
	moved := birth != "" && have.Birth == birth || birth == "" && im.adopted && have.Root == im.root
	return have.Marker == im.marker || moved
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

// unit imports one session. What is wrong with its files is reported and does not
// end the import; what is wrong with the store does.
func (im *importer) unit(ctx context.Context, name unitName) error {
	err := im.try(ctx, name)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case foreign.IsOwnFault(err):
		im.problem(path.Join(name.dir, beside[name.id]), 0, err.Error())
	default:
		return fmt.Errorf("%s: %w", path.Join(name.dir, beside[name.id]), err)
	}
	if im.dry != nil {
		im.dry.Forget(events.Session(im.target.Namespace(), name.id))
	}
	im.progress.Sessions++
	im.tell()
	return nil
}

// try imports a session, again if somebody else wrote to it meanwhile.
func (im *importer) try(ctx context.Context, name unitName) error {
	if _, reserved := beside[name.id]; reserved && name.dir != "" {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is the session of %s", name.id, beside[name.id])}
	}
	for try := 0; ; try++ {
		u := im.newUnit(name)
		if err := u.list(""); err != nil {
			return err
		}
		if len(u.files) == 0 {
			im.finish(u, nil)
			return nil
		}
		if err := im.identify(u); err != nil {
			return err
		}
		err := im.session(ctx, u)
		if err == nil || !foreign.IsRace(err) || try == foreign.MaxTries {
			return err
		}
		if err := foreign.Pause(ctx, try); err != nil {
			return err
		}
	}
}

// identify checks that a folder's name says the id.
func (im *importer) identify(u *unit) error {
	if u.dir == "" {
		return nil
	}
	if formats.IsShortened(path.Base(u.dir)) {
		if s := u.file(metadataName); s != nil && u.scanFile(s) == nil {
			if id := text(u.metadata, "id"); formats.FileName(id) == path.Base(u.dir) {
				u.id = id
			}
		}
	}
	if dirOf(u.id) != u.dir {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("the folder of session %q is called %q", u.id, dirOf(u.id))}
	}
	return events.Session(im.target.Namespace(), u.id).Validate()
}

// session brings one unit in.
func (im *importer) session(ctx context.Context, u *unit) error {
	if err := u.scan(); err != nil {
		return err
	}
	s, err := im.load(ctx, u.id)
	if err != nil {
		return err
	}
	v := newView(im.target, s)
	fresh := s.Offset() == 0
	if !fresh {
		differing, err := v.differing(ctx, u)
		if err != nil {
			return err
		}
		if len(differing) == 0 {
			im.finish(u, &im.report.Unchanged)
			return nil
		}
	}
	origin := im.origin(s, u)
	p, err := makePlan(ctx, v, u, origin)
	if err != nil {
		return err
	}
	if reason, err := im.refusal(ctx, p); err != nil || reason != "" {
		im.refuse(u, reason)
		return err
	}
	before := im.report.Events
	if err := im.carryOut(ctx, p, u, origin); err != nil {
		return err
	}
	switch {
	case fresh:
		im.finish(u, &im.report.Added)
	case im.report.Events == before:
		im.finish(u, &im.report.Unchanged) // somebody else brought it in meanwhile
	default:
		im.finish(u, &im.report.Changed)
	}
	return nil
}

// carryOut appends what a plan comes to, settles how the files are spelled, and
// looks whether they come out.
func (im *importer) carryOut(ctx context.Context, p *plan, u *unit, origin *events.Origin) error {
	if err := p.apply(ctx, im.target, im.added); err != nil {
		return err
	}
	s, err := im.load(ctx, u.id)
	if err != nil {
		return err
	}
	if err := im.seal(ctx, newView(im.target, s), u, origin); err != nil {
		return err
	}
	if s, err = im.load(ctx, u.id); err != nil {
		return err
	}
	v := newView(im.target, s)
	differing, err := v.differing(ctx, u)
	for _, name := range differing {
		im.problem(path.Join(u.dir, name), 0, "does not come out of the store as it is: the file or the session changed while it was imported")
	}
	for _, s := range u.files {
		f, _, err := v.file(ctx, s.path)
		if err != nil {
			return err
		}
		im.report.Files.Add(f.way())
	}
	return err
}

// differing lists the files whose bytes the session would not give back, and those
// that only one of both has.
func (v view) differing(ctx context.Context, u *unit) ([]string, error) {
	names := v.paths()
	for _, s := range u.files {
		names = append(names, s.path)
	}
	slices.Sort(names)
	var list []string
	for _, name := range slices.Compact(names) {
		f, ok, err := v.file(ctx, name)
		if err != nil {
			return nil, err
		}
		s := u.file(name)
		same := !ok && s == nil
		if ok && s != nil {
			if same, err = v.same(ctx, f, s); err != nil {
				return nil, err
			}
		}
		if !same {
			list = append(list, name)
		}
	}
	return list, nil
}

// same reports whether a file comes out as it is.
func (v view) same(ctx context.Context, f file, s *source) (bool, error) {
	switch {
	case f.mode() != s.mode:
		return false, nil
	case !f.whole:
		return f.sum() == s.sum, nil
	}
	doc, at, err := f.format.Doc.Parse(v.s.Subject.Namespace)
	if err != nil || at != 0 {
		return false, err
	}
	have, err := foreign.Load(ctx, v.src, doc)
	return have.Exists && have.Sum == s.sum, err
}

// added counts events as they go in.
func (im *importer) added(n int) {
	im.report.Events += n
	im.progress.Events += n
	im.tell()
}

// finish reports a session that was dealt with.
func (im *importer) finish(u *unit, outcome *int) {
	for _, link := range u.links {
		im.problem(link, 0, "is neither a file nor a folder: not followed, not imported")
	}
	if outcome == nil {
		return
	}
	*outcome++
	im.report.Sessions++
	for _, s := range u.files {
		im.report.Problems = append(im.report.Problems, s.issues...)
		im.count(s)
	}
}

func (im *importer) count(s *source) {
	im.report.Bytes += s.size
	im.progress.Files++
	im.progress.Bytes += s.size
}

func (im *importer) problem(file string, line int, reason string) {
	im.report.Problems = append(im.report.Problems, formats.Problem{File: file, Line: line, Reason: reason})
}

func (im *importer) tell() {
	if im.o.Progress != nil {
		im.o.Progress(im.progress)
	}
}
