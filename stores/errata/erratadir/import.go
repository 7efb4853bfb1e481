package erratadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/stores/internal/foreign"
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
	in, err := foreign.NewIntake(target, stamp, at, o)
	if err != nil {
		return formats.Report{}, err
	}
	defer in.Tree.Root.Close()
	im := &importer{Intake: in}
	if o.DryRun {
		im.dry = foreign.NewRehearsal(target)
		im.Target = im.dry
	}
	err = im.run(ctx, at.Single)
	im.Report.Root = im.Root
	return im.Report, err
}

type importer struct {
	*foreign.Intake
	dry *foreign.Rehearsal // of a dry run
}

func (im *importer) run(ctx context.Context, single string) error {
	units, err := im.units(single)
	if err != nil {
		return err
	}
	im.Expect(len(units))
	ids := make([]string, len(units))
	for i, u := range units {
		ids[i] = u.id
	}
	if err := im.Know(ctx, ids, func(n int) string { return im.birthOf(units[n]) }); err != nil {
		return err
	}
	for _, u := range units {
		if err := im.unit(ctx, u); err != nil {
			return err
		}
	}
	if single != "" || len(im.Options.Only) > 0 {
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
	entries, err := im.Tree.Entries(sessions)
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
	return slices.DeleteFunc(list, func(u unitName) bool { return len(im.Options.Only) > 0 && !slices.Contains(im.Options.Only, u.id) }), nil
}

// isBeside reports whether a file of the root is a session of its own.
func (im *importer) isBeside(name string) bool {
	info, err := im.Tree.Root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if name != historyName {
		return name == promptsName || name == checkpointName
	}
	r, err := im.Tree.Open(name)
	if err != nil {
		return false
	}
	defer r.Close()
	head := make([]byte, 4<<10)
	n, _ := r.Read(head)
	return historyHead.Match(head[:n])
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
	return &unit{tree: im.Tree, limit: int(foreign.WholeLimit(im.Target)) - 64<<10, id: name.id, dir: name.dir}
}

// unit imports one session.
func (im *importer) unit(ctx context.Context, name unitName) error {
	err := im.reserved(name)
	if err == nil {
		err = foreign.Retry(ctx, func(bool) error { return im.try(ctx, name) })
	}
	if im.dry != nil {
		im.dry.Forget(events.Session(im.Target.Namespace(), name.id))
	}
	return im.Settle(ctx, path.Join(name.dir, beside[name.id]), err)
}

// reserved refuses a folder that has the name of a session beside the folders.
func (im *importer) reserved(name unitName) error {
	if file, reserved := beside[name.id]; reserved && name.dir != "" {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is the session of %s", name.id, file)}
	}
	return nil
}

func (im *importer) try(ctx context.Context, name unitName) error {
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
	return im.session(ctx, u)
}

// identify checks that a folder's name says the id.
func (im *importer) identify(u *unit) error {
	if u.dir == "" {
		return nil
	}
	if formats.IsShortened(path.Base(u.dir)) {
		if s := u.file(metadataName); s != nil && u.scanFile(s) == nil {
			if id := u.metadata.Text("id"); formats.FileName(id) == path.Base(u.dir) {
				u.id = id
			}
		}
	}
	if dirOf(u.id) != u.dir {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("the folder of session %q is called %q", u.id, dirOf(u.id))}
	}
	return events.Session(im.Target.Namespace(), u.id).Validate()
}

// session brings one unit in.
func (im *importer) session(ctx context.Context, u *unit) error {
	if err := u.scan(); err != nil {
		return err
	}
	s, err := im.Load(ctx, u.id)
	if err != nil {
		return err
	}
	v := newView(im.Target, s)
	fresh := s.Offset() == 0
	if !fresh {
		differing, err := v.differing(ctx, u)
		if err != nil {
			return err
		}
		if len(differing) == 0 {
			im.finish(u, &im.Report.Unchanged)
			return nil
		}
	}
	origin := im.Origin(s, u.birth)
	p, err := makePlan(ctx, v, u, origin)
	if err != nil {
		return err
	}
	reason, err := im.Refusal(ctx, s, u.birth, func(since map[string]bool) bool { return contradicts(since, p) })
	if err != nil || reason != "" {
		im.Refuse(u.id, path.Join(u.dir, beside[u.id]), reason)
		return err
	}
	before := im.Report.Events
	if err := im.carryOut(ctx, p, u, origin); err != nil {
		return err
	}
	switch {
	case fresh:
		im.finish(u, &im.Report.Added)
	case im.Report.Events == before:
		im.finish(u, &im.Report.Unchanged) // somebody else brought it in meanwhile
	default:
		im.finish(u, &im.Report.Changed)
	}
	return nil
}

// carryOut appends what a plan comes to, settles how the files are spelled, and
// looks whether they come out.
func (im *importer) carryOut(ctx context.Context, p *plan, u *unit, origin *events.Origin) error {
	if err := p.apply(ctx, im.Target, im.Added); err != nil {
		return err
	}
	s, err := im.Load(ctx, u.id)
	if err != nil {
		return err
	}
	if err := im.seal(ctx, newView(im.Target, s), u, origin); err != nil {
		return err
	}
	if s, err = im.Load(ctx, u.id); err != nil {
		return err
	}
	v := newView(im.Target, s)
	differing, err := v.differing(ctx, u)
	for _, name := range differing {
		im.Problem(path.Join(u.dir, name), 0, "does not come out of the store as it is: the file or the session changed while it was imported")
	}
	for _, s := range u.files {
		f, _, err := v.file(ctx, s.path)
		if err != nil {
			return err
		}
		im.Report.Files.Add(f.way())
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

// finish reports a session that was dealt with.
func (im *importer) finish(u *unit, outcome *int) {
	im.Skipped(u.links...)
	if outcome == nil {
		return
	}
	*outcome++
	im.Report.Sessions++
	for _, s := range u.files {
		im.Report.Problems = append(im.Report.Problems, s.issues...)
		im.Read(s.size)
	}
}
