package erratadir

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/stores/internal/sessiondir"
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
	return sessiondir.Import(ctx, target, stamp, at, o, bringer(ctx))
}

// bringer brings in what a folder holds, or a storage.
func bringer(ctx context.Context) func(*sessiondir.Intake) error {
	return func(in *sessiondir.Intake) error { return importer{in}.run(ctx) }
}

type importer struct{ *sessiondir.Intake }

func (im importer) run(ctx context.Context) error {
	units, err := im.units()
	if err != nil {
		return err
	}
	if err := im.Begin(ctx, units, im.birthOf); err != nil {
		return err
	}
	for _, u := range units {
		if err := im.unit(ctx, u); err != nil {
			return err
		}
	}
	if im.IsPart() {
		return ctx.Err()
	}
	return im.rootFiles(ctx)
}

// units lists the sessions to import.
func (im importer) units() ([]sessiondir.Unit, error) {
	list, err := im.Units(sessions)
	if err != nil || im.Single != "" {
		return list, err
	}
	for _, id := range []string{headlessID, historyID, promptsID} {
		if im.Wants(id) && im.isBeside(beside[id]) {
			list = append(list, sessiondir.Unit{ID: id})
		}
	}
	return list, nil
}

// isBeside reports whether a file of the root is a session of its own.
func (im importer) isBeside(name string) bool {
	if partsBeside[name] == partOther {
		return false
	}
	_, err := im.Tree.File(name)
	return err == nil && (name != historyName || isHistory(im.Tree.Open(name)))
}

// birthOf reads what a folder says of its beginning.
func (im importer) birthOf(at sessiondir.Unit) string {
	u := im.newUnit(at)
	f, err := im.Tree.File(path.Join(at.Dir, metadataName))
	if _, own := beside[at.ID]; own || err != nil || u.scanFile(f, partMetadata) != nil {
		return ""
	}
	return u.birth
}

func (im importer) newUnit(at sessiondir.Unit) *unit { return &unit{Folder: im.Folder(at)} }

// unit imports one session.
func (im importer) unit(ctx context.Context, at sessiondir.Unit) error {
	err := im.unkept(ctx, beside[at.ID])
	if err == nil {
		err = sessiondir.Retry(ctx, func(bool) error { return im.try(ctx, at) })
	}
	if im.Dry != nil {
		im.Dry.Forget(events.Session(im.Target.Namespace(), at.ID))
	}
	return im.Settle(ctx, path.Join(at.Dir, beside[at.ID]), err)
}

func (im importer) try(ctx context.Context, at sessiondir.Unit) error {
	if file, reserved := beside[at.ID]; reserved && at.Dir != "" {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is the session of %s", at.ID, file)}
	}
	u := im.newUnit(at)
	if err := u.list(); err != nil {
		return err
	}
	if len(u.Files) == 0 {
		im.Skipped(u.Links...)
		return nil
	}
	if err := im.identify(u); err != nil {
		return err
	}
	return im.session(ctx, u)
}

// identify checks that a folder's name says the id.
func (im importer) identify(u *unit) error {
	if u.Dir == "" {
		return nil
	}
	if formats.IsShortened(path.Base(u.Dir)) {
		if f := u.file(metadataName); f != nil && u.scanFile(f, partMetadata) == nil {
			if id := u.metadata.Text("id"); formats.FileName(id) == path.Base(u.Dir) {
				u.ID = id
			}
		}
	}
	if dirOf(u.ID) != u.Dir {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("the folder of session %q is called %q", u.ID, dirOf(u.ID))}
	}
	return events.Session(im.Target.Namespace(), u.ID).Validate()
}

// session brings one unit in.
func (im importer) session(ctx context.Context, u *unit) error {
	if err := u.scan(); err != nil {
		return err
	}
	s, err := im.Load(ctx, u.ID)
	if err != nil {
		return err
	}
	v := newView(im.Target, s)
	return im.Bring(ctx, s, sessiondir.Work{ID: u.ID, Place: path.Join(u.Dir, beside[u.ID]), Birth: u.birth,
		Same: func() (bool, error) {
			differing, err := v.differing(ctx, u)
			return len(differing) == 0, err
		},
		Plan: func(origin *events.Origin) (sessiondir.Steps, error) {
			p, err := makePlan(ctx, v, u, origin)
			return sessiondir.Steps{Contradicts: p.contradicts, Apply: func() error { return im.carryOut(ctx, p, u, origin) }}, err
		},
		Finish: func(outcome *int) { im.Finish(u.Folder, outcome) },
	})
}

// carryOut appends what a plan comes to, settles how the files are spelled, and
// looks whether they come out.
func (im importer) carryOut(ctx context.Context, p *plan, u *unit, origin *events.Origin) error {
	if err := p.apply(ctx, im.Intake); err != nil {
		return err
	}
	s, err := im.Load(ctx, u.ID)
	if err != nil {
		return err
	}
	if err := im.seal(ctx, newView(im.Target, s), u, origin); err != nil {
		return err
	}
	if s, err = im.Load(ctx, u.ID); err != nil {
		return err
	}
	v := newView(im.Target, s)
	differing, err := v.differing(ctx, u)
	im.NotAsItIs(u.Dir, differing)
	for _, f := range u.Files {
		out, _, err := v.file(ctx, f.Path)
		if err != nil {
			return err
		}
		im.Report.Files.Add(out.Way())
	}
	return err
}

// differing lists the files whose bytes the session would not give back, and those
// that only one of both has.
func (v view) differing(ctx context.Context, u *unit) ([]string, error) {
	names := v.paths()
	for _, f := range u.Files {
		names = append(names, f.Path)
	}
	slices.Sort(names)
	var list []string
	for _, name := range slices.Compact(names) {
		out, ok, err := v.file(ctx, name)
		if err != nil {
			return nil, err
		}
		f := u.file(name)
		same := !ok && f == nil
		if ok && f != nil && out.Format.Mode == f.Mode {
			if same, err = out.Holds(ctx, f.Sum); err != nil {
				return nil, err
			}
		}
		if !same {
			list = append(list, name)
		}
	}
	return list, nil
}
