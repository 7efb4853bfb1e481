package sessiondir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// Intake is what the imports of folders have in common: where sessions come from,
// where they go, and what is reported of them.
type Intake struct {
	Stamp
	Target  layouts.Target
	Options layouts.ImportOptions
	Tree    Tree
	Root    string          // name under which the folder is exported
	Marker  string          // of the folder's place
	Single  string          // name of the one session that was asked for; "": all
	Adopted bool            // Root is the name of an earlier import of this folder
	There   map[string]bool // ids of the sessions that existed in the beginning
	Report  layouts.Report
	Dry     *layouts.Rehearsal // the target of a dry run, else nil

	unit     string // what one session is imported from
	progress *progress
}

// progress is told of by one at a time.
type progress struct {
	mu   sync.Mutex // guards now, and calls of tell
	now  layouts.Progress
	tell func(layouts.Progress)
}

// Import opens a folder and has it brought in by run. A dry run appends to a rehearsal.
func Import(ctx context.Context, target layouts.Target, stamp Stamp, at Location, o layouts.ImportOptions, run func(*Intake) error) (layouts.Report, error) {
	dir, err := layouts.OpenDir(at.Root)
	if err != nil {
		return layouts.Report{}, err
	}
	defer dir.Close()
	in := newIntake(ctx, target, stamp, dir, layouts.Root{Name: KeyOf(at.Name), Marker: at.Marker}, o)
	in.Single, in.Report.Dir = at.Single, at.Root
	return in.carriedOut(run)
}

// ImportFrom has what is in a storage brought in by run.
func ImportFrom(ctx context.Context, target layouts.Target, stamp Stamp, st layouts.Storage, root layouts.Root, o layouts.ImportOptions, run func(*Intake) error) (layouts.Report, error) {
	return newIntake(ctx, target, stamp, st, root, o).carriedOut(run)
}

func newIntake(ctx context.Context, target layouts.Target, stamp Stamp, st layouts.Storage, root layouts.Root, o layouts.ImportOptions) *Intake {
	return &Intake{Stamp: stamp, Target: target, Options: o, Tree: NewTree(ctx, st, target), Root: root.Name, Marker: root.Marker, unit: "folder"}
}

func (in *Intake) carriedOut(run func(*Intake) error) (layouts.Report, error) {
	in.There, in.progress = make(map[string]bool), &progress{tell: in.Options.Progress}
	if in.Options.DryRun {
		in.Dry = layouts.NewRehearsal(in.Target)
		in.Target = in.Dry
	}
	s := &stored{Target: in.Target}
	in.Target = s
	err := run(in)
	s.report(&in.Report)
	in.Report.Root = in.Root
	return in.Report, err
}

// IsPart reports whether only some sessions are imported: then files that belong to none
// are left alone.
func (in *Intake) IsPart() bool { return in.Single != "" || len(in.Options.Only) > 0 }

// Part returns an intake with a report of its own, for a part that is imported beside
// others.
func (in *Intake) Part() *Intake {
	part := *in
	part.Report = layouts.Report{}
	return &part
}

// Expect says how many sessions will be looked at.
func (in *Intake) Expect(sessions int) { in.progress.now.Of = sessions }

// progressed tells how far the import has got.
func (in *Intake) progressed(change func(*layouts.Progress)) {
	in.progress.mu.Lock()
	defer in.progress.mu.Unlock()
	change(&in.progress.now)
	if in.progress.tell != nil {
		in.progress.tell(in.progress.now)
	}
}

// Added counts events as they go in.
func (in *Intake) Added(n int) {
	in.Report.Events += n
	in.progressed(func(p *layouts.Progress) { p.Events += n })
}

// Read counts a file that was read.
func (in *Intake) Read(size int64) {
	in.Report.Bytes += size
	in.progressed(func(p *layouts.Progress) { p.Files, p.Bytes = p.Files+1, p.Bytes+size })
}

// Problem reports what is wrong with a file.
func (in *Intake) Problem(file string, line int, reason string) {
	in.Report.Problems = append(in.Report.Problems, layouts.Problem{File: file, Line: line, Reason: reason})
}

// Skipped reports what is neither a file nor a folder.
func (in *Intake) Skipped(links ...string) {
	for _, link := range links {
		in.Problem(link, 0, "is neither a file nor a folder: not followed, not imported")
	}
}

// Finish reports a session that was dealt with.
func (in *Intake) Finish(f Folder, outcome *int) {
	in.Skipped(f.Links...)
	*outcome++
	in.Report.Sessions++
	for _, file := range f.Files {
		in.Report.Problems = append(in.Report.Problems, file.Issues...)
		in.Read(file.Size)
	}
}

// NotAsItIs reports files that the store does not give back.
func (in *Intake) NotAsItIs(dir string, names []string) {
	for _, name := range names {
		in.Problem(path.Join(dir, name), 0, "does not come out of the store as it is: the file or the session changed while it was imported")
	}
}

// Settle ends the import of one session. What is wrong with its files is reported
// and does not end the whole; what is wrong with the store does.
func (in *Intake) Settle(ctx context.Context, place string, err error) error {
	if err := in.Spare(ctx, place, err); err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("%s: %w", place, err))
	}
	in.progressed(func(p *layouts.Progress) { p.Sessions++ })
	return nil
}

// Spare reports what is wrong with the files of a place, and returns what is wrong with
// the store.
func (in *Intake) Spare(ctx context.Context, place string, err error) error {
	if err == nil || ctx.Err() != nil || !isOwnFault(err) {
		return err
	}
	in.Problem(place, 0, err.Error())
	return nil
}

// Retry imports one session, again if somebody else wrote to it meanwhile.
func Retry(ctx context.Context, attempt func(again bool) error) error {
	for try := 0; ; try++ {
		err := attempt(try > 0)
		if err == nil || !isRace(err) || try == maxTries {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// Load returns a session, an empty one if it does not exist.
func (in *Intake) Load(ctx context.Context, id string) (*projector.Session, error) {
	sub := events.Session(in.Target.Namespace(), id)
	s, err := in.Target.Loader().Session(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return projector.NewSession(sub), nil
	}
	return s, err
}

// Begin finds out which sessions there are, and under which name this folder was
// imported before: the first name stays. birthOf reads what a session's folder says of
// its beginning.
func (in *Intake) Begin(ctx context.Context, units []Unit, birthOf func(Unit) string) error {
	in.Expect(len(units))
	if in.Options.Part || in.IsPart() {
		return in.beginPart(ctx, units, birthOf)
	}
	for info, err := range in.Target.Subjects(ctx, events.KindSession) {
		if err != nil {
			return err
		}
		in.There[info.Subject.ID] = true
	}
	for _, u := range units {
		if !in.There[u.ID] {
			continue
		}
		if _, err := in.adopt(ctx, u, birthOf); err != nil || in.Adopted {
			return err
		}
	}
	return nil
}

// beginPart is Begin where few of the sessions matter: the others are not asked for.
func (in *Intake) beginPart(ctx context.Context, units []Unit, birthOf func(Unit) string) error {
	for _, u := range units {
		there, err := in.adopt(ctx, u, birthOf)
		if err != nil {
			return err
		}
		in.There[u.ID] = there
	}
	return nil
}

// adopt takes the name of the root from a session that came from this folder, if none was
// taken yet, and reports whether the session is there. Whoever imports a part says the name.
func (in *Intake) adopt(ctx context.Context, u Unit, birthOf func(Unit) string) (there bool, err error) {
	o, err := in.Target.Loader().Peek(ctx, events.Session(in.Target.Namespace(), u.ID))
	if err != nil || o.Offset() == 0 {
		return false, err
	}
	have := o.Ledger().Origin()
	if have != nil && !in.Adopted && !in.Options.Part && in.isSameOrigin(have, birthOf(u)) && have.Root != "" {
		in.Root, in.Adopted = have.Root, true
	}
	return true, nil
}

// isSameOrigin reports whether a session came from this folder: from its place, or
// from where it was before it was moved.
func (in *Intake) isSameOrigin(have *events.Origin, birth string) bool {
	if have.Format != in.Format {
		return false
	}
	moved := birth != "" && have.Birth == birth || birth == "" && in.Adopted && have.Root == in.Root
	return have.Marker == in.Marker || moved
}

// Origin is what a session shall say of where it comes from. The first name of the
// root stays.
func (in *Intake) Origin(s *projector.Session, birth string) *events.Origin {
	o := &events.Origin{Format: in.Format, Root: in.Root, Marker: in.Marker, Birth: birth}
	have := s.Ledger.Origin()
	if have != nil && in.Options.Part && have.Format == in.Format && have.Root != "" && have.Root != in.Root {
		return have // a tree shows it, and it stays of the folder that it was imported from
	}
	if have != nil && in.isSameOrigin(have, birth) {
		o.Root, o.Birth = cmp.Or(have.Root, o.Root), cmp.Or(o.Birth, have.Birth)
	}
	return o
}
