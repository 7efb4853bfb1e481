package perstackdir

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Import implements formats.Layout. It brings a folder into a store: perstack/, the folder
// that holds it, that of the jobs, or the folder of one job. It never writes into the folder,
// and the original may go on writing meanwhile.
//
// Importing again adds what has changed and nothing else. A job that exists already, differs
// from the folder, and came from another place or was changed since its last import is
// refused, unless o.Merge; it is left as it is and the rest goes in. Files that cannot be
// read are problems of the report; they are kept as they are. A setting with secrets does not
// go in without a key, nor is it kept. An error means that the import ended early; importing
// again goes on from there.
func (l Layout) Import(ctx context.Context, target formats.Target, path string, o formats.ImportOptions) (formats.Report, error) {
	at, err := locate(path)
	if err != nil {
		return formats.Report{}, err
	}
	keys, err := l.keysFor(o)
	if err != nil {
		return formats.Report{}, err
	}
	return sessiondir.Import(ctx, target, stamp, at, o, keys.bringer(ctx))
}

// keysFor opens the keys for an import, which may do without.
func (l Layout) keysFor(o formats.ImportOptions) (keyring, error) {
	keys := l.open()
	if keys.err != nil && !errors.Is(keys.err, sealed.ErrNoKey) && !o.NoSecrets {
		return keys, keys.err
	}
	return keys, nil
}

// bringer brings in what a folder holds, or a storage.
func (k keyring) bringer(ctx context.Context) func(*sessiondir.Intake) error {
	return func(in *sessiondir.Intake) error { return importer{in, k}.run(ctx) }
}

type importer struct {
	*sessiondir.Intake
	keys keyring
}

func (im importer) run(ctx context.Context) error {
	units, err := im.Units(jobsName)
	if err != nil {
		return err
	}
	units = im.distinct(units)
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

// birthOf reads what a folder says of its beginning.
func (im importer) birthOf(at sessiondir.Unit) string {
	u := im.newUnit(at)
	f, err := im.Tree.File(path.Join(at.Dir, jobName))
	if err != nil {
		return ""
	}
	f.Path = jobName
	data, err := im.read(u, f)
	if err != nil || data == nil {
		return ""
	}
	v := &value{File: f, place: placeOf(jobName)}
	if v.take(u, data) != nil {
		return ""
	}
	return u.birth
}

// unit imports one job.
func (im importer) unit(ctx context.Context, at sessiondir.Unit) error {
	err := sessiondir.Retry(ctx, func(bool) error { return im.try(ctx, at) })
	if im.Dry != nil {
		im.Dry.Forget(events.Session(im.Target.Namespace(), at.ID))
	}
	return im.Settle(ctx, at.Dir, err)
}

func (im importer) try(ctx context.Context, at sessiondir.Unit) error {
	before := len(im.Report.Problems)
	u, err := im.scanned(at)
	if err != nil {
		im.Report.Problems = im.Report.Problems[:before] // it is tried again, or says it itself
		return err
	}
	if len(u.Files) == 0 {
		im.Skipped(u.Links...)
		return nil
	}
	if err := events.Session(im.Target.Namespace(), u.ID).Validate(); err != nil {
		return err
	}
	err = im.session(ctx, u)
	if err != nil {
		im.Report.Problems = im.Report.Problems[:before]
	}
	return err
}

// session brings one unit in.
func (im importer) session(ctx context.Context, u *unit) error {
	s, err := im.Load(ctx, u.ID)
	if err != nil {
		return err
	}
	v := newView(im.Target, s, im.keys)
	return im.Bring(ctx, s, sessiondir.Work{ID: u.ID, Place: u.Dir, Kind: events.KindJob, Birth: u.birth,
		Same: func() (bool, error) {
			differing, err := im.differing(ctx, v, u)
			return len(differing) == 0, err
		},
		Plan: func(origin *events.Origin) (sessiondir.Steps, error) {
			p, err := im.plan(ctx, v, u, origin)
			return sessiondir.Steps{Contradicts: p.contradicts, Apply: func() error { return im.carryOut(ctx, p) }}, err
		},
		Finish: func(outcome *int) { im.finish(u, outcome) }, Status: u.status(),
	})
}

// carryOut appends what a plan comes to, settles how the files are spelled or kept, and looks
// whether they come out.
func (im importer) carryOut(ctx context.Context, p *plan) error {
	if err := p.apply(ctx); err != nil {
		return err
	}
	v, err := im.viewOf(ctx, p.u)
	if err != nil {
		return err
	}
	if err := im.seal(ctx, v, p.u, p.origin); err != nil {
		return err
	}
	if v, err = im.viewOf(ctx, p.u); err != nil {
		return err
	}
	differing, err := im.differing(ctx, v, p.u)
	if err != nil {
		return err
	}
	im.NotAsItIs(p.u.Dir, differing)
	for _, f := range p.u.Files {
		if out, _, err := v.file(ctx, f.Path); err == nil && !p.u.out[f.Path] {
			im.Report.Files.Add(out.Way())
		}
	}
	return nil
}

func (im importer) viewOf(ctx context.Context, u *unit) (view, error) {
	s, err := im.Load(ctx, u.ID)
	return newView(im.Target, s, im.keys), err
}

const maxNotes = 20 // listed for one job

// finish reports the job.
func (im importer) finish(u *unit, outcome *int) {
	im.Finish(u.Folder, outcome)
	for i, name := range u.notes {
		reason := "is not a file of the original's: kept as it is"
		switch {
		case i == maxNotes:
			name, reason = "", fmt.Sprintf("and %d more such files", len(u.notes)-maxNotes)
		case i > maxNotes:
			return
		case isVariant(name):
			reason = "is a checkpoint where the original does not look for one: kept as it is, nothing is taken from it"
		}
		im.Report.Notes = append(im.Report.Notes, formats.Problem{File: path.Join(u.Dir, name), Reason: reason})
	}
}

// differing lists the files whose bytes the session would not give back, and those that only
// one of both has.
func (im importer) differing(ctx context.Context, v view, u *unit) ([]string, error) {
	names, err := v.paths(ctx)
	if err != nil {
		return nil, err
	}
	for name := range u.files {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []string
	for _, name := range slices.Compact(names) {
		if u.isOut(name) {
			continue
		}
		same, err := im.isSame(ctx, v, u, name)
		if err != nil {
			return nil, err
		}
		if !same {
			list = append(list, name)
		}
	}
	return list, nil
}

// isSame reports whether the session has a file as the folder has it.
func (im importer) isSame(ctx context.Context, v view, u *unit, name string) (bool, error) {
	o, ok, err := v.file(ctx, name)
	f := u.file(name)
	if err != nil || !ok || f == nil {
		return !ok && f == nil && !o.Moved, err
	}
	if o.Format.Mode != f.Mode || o.Moved {
		return false, nil
	}
	st := v.known.files[name]
	if !o.Whole && st.part != partSetting {
		return st.sum == f.Sum, nil
	}
	same, err := o.Holds(ctx, f.Sum)
	if w := u.byFile[f]; err == nil && !same && !o.Whole && w != nil && im.Options.NoSecrets {
		same = st.value == w.setting.sum() // what is left out is not compared
	}
	return same, err
}
