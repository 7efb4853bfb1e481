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

// Intake is the state that all imports share: the source of the sessions, the target, and the report.
type Intake struct {
	Stamp
	Target  layouts.Target
	Options layouts.ImportOptions
	Tree    Tree
	Root    string          // name under which the folder is exported
	Marker  string          // identifies the folder, see Root.Marker
	Single  string          // name of the only session to import; "": all
	Adopted bool            // Root is the name of an earlier import of this folder
	There   map[string]bool // ids of the sessions that existed before the import
	Report  layouts.Report
	Dry     *layouts.DryRun // the target of a dry run, else nil

	noun     string // source of a session for messages: folder or file
	progress *progress
}

// progress holds the progress of an import. Only one goroutine at a time calls tell.
type progress struct {
	mu   sync.Mutex // guards now, and calls of tell
	now  layouts.Progress
	tell func(layouts.Progress)
}

// Import opens a folder and imports it by calling run. A dry run appends to memory only.
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

// ImportFrom imports the content of a storage by calling run.
func ImportFrom(ctx context.Context, target layouts.Target, stamp Stamp, st layouts.Storage, root layouts.Root, o layouts.ImportOptions, run func(*Intake) error) (layouts.Report, error) {
	return newIntake(ctx, target, stamp, st, root, o).carriedOut(run)
}

func newIntake(ctx context.Context, target layouts.Target, stamp Stamp, st layouts.Storage, root layouts.Root, o layouts.ImportOptions) *Intake {
	return &Intake{Stamp: stamp, Target: target, Options: o, Tree: NewTree(ctx, st, target), Root: root.Name, Marker: root.Marker, noun: "folder"}
}

func (in *Intake) carriedOut(run func(*Intake) error) (layouts.Report, error) {
	in.There, in.progress = make(map[string]bool), &progress{tell: in.Options.Progress}
	if in.Options.DryRun {
		in.Dry = layouts.NewDryRun(in.Target)
		in.Target = in.Dry
	}
	s := &stored{Target: in.Target}
	in.Target = s
	err := run(in)
	s.report(&in.Report)
	in.Report.Root = in.Root
	return in.Report, err
}

// IsPart reports whether only some sessions are imported. Then files outside of sessions are not imported.
func (in *Intake) IsPart() bool { return in.Single != "" || len(in.Options.Only) > 0 }

// Part returns an intake with a report of its own, for a part that is imported concurrently.
func (in *Intake) Part() *Intake {
	part := *in
	part.Report = layouts.Report{}
	return &part
}

// Expect sets the number of sessions to import.
func (in *Intake) Expect(sessions int) { in.progress.now.Of = sessions }

// progressed reports the progress of the import.
func (in *Intake) progressed(change func(*layouts.Progress)) {
	in.progress.mu.Lock()
	defer in.progress.mu.Unlock()
	change(&in.progress.now)
	if in.progress.tell != nil {
		in.progress.tell(in.progress.now)
	}
}

// Added counts appended events.
func (in *Intake) Added(n int) {
	in.Report.Events += n
	in.progressed(func(p *layouts.Progress) { p.Events += n })
}

// Read counts a file and its bytes.
func (in *Intake) Read(size int64) {
	in.Report.Bytes += size
	in.progressed(func(p *layouts.Progress) { p.Files, p.Bytes = p.Files+1, p.Bytes+size })
}

// Problem adds a problem of a file to the report.
func (in *Intake) Problem(file string, line int, reason string) {
	in.Report.Problems = append(in.Report.Problems, layouts.Problem{File: file, Line: line, Reason: reason})
}

// Skipped adds problems for paths that are neither files nor folders.
func (in *Intake) Skipped(links ...string) {
	for _, link := range links {
		in.Problem(link, 0, "is neither a file nor a folder: not imported")
	}
}

// Finish adds an imported session to the report.
func (in *Intake) Finish(f Folder, outcome *int) {
	in.Skipped(f.Links...)
	*outcome++
	in.Report.Sessions++
	for _, file := range f.Files {
		in.Report.Problems = append(in.Report.Problems, file.Issues...)
		in.Read(file.Size)
	}
}

// NotAsItIs reports files that the store would write with other bytes.
func (in *Intake) NotAsItIs(dir string, names []string) {
	for _, name := range names {
		in.Problem(path.Join(dir, name), 0, "differs from its export: the file or the session changed during the import")
	}
}

// Settle ends the import of one session. It reports an error of the session's files and returns nil, so that the
// import goes on. It returns an error of the store.
func (in *Intake) Settle(ctx context.Context, file string, err error) error {
	if err := in.Spare(ctx, file, err); err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("%s: %w", file, err))
	}
	in.progressed(func(p *layouts.Progress) { p.Sessions++ })
	return nil
}

// Spare reports an error of the files at a path, and returns any other error.
func (in *Intake) Spare(ctx context.Context, file string, err error) error {
	if err == nil || ctx.Err() != nil || !isOwnFault(err) {
		return err
	}
	in.Problem(file, 0, err.Error())
	return nil
}

// Retry imports one session, again if another writer appended to it meanwhile.
func Retry(ctx context.Context, attempt func(again bool) error) error {
	for n := 0; ; n++ {
		err := attempt(n > 0)
		if err == nil || !isRace(err) || n == maxAttempts {
			return err
		}
		if err := pause(ctx, n); err != nil {
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

// Begin finds out which sessions exist, and under which name this folder was imported before; it keeps that name.
// birthOf reads the beginning of a session from its folder.
func (in *Intake) Begin(ctx context.Context, entries []Entry, birthOf func(Entry) string) error {
	in.Expect(len(entries))
	if in.Options.Part || in.IsPart() {
		return in.beginPart(ctx, entries, birthOf)
	}
	for info, err := range in.Target.Subjects(ctx, events.KindSession) {
		if err != nil {
			return err
		}
		in.There[info.Subject.ID] = true
	}
	for _, u := range entries {
		if !in.There[u.ID] {
			continue
		}
		if _, err := in.adopt(ctx, u, birthOf); err != nil || in.Adopted {
			return err
		}
	}
	return nil
}

// beginPart is Begin for an import of few sessions: it does not list the others.
func (in *Intake) beginPart(ctx context.Context, entries []Entry, birthOf func(Entry) string) error {
	for _, u := range entries {
		there, err := in.adopt(ctx, u, birthOf)
		if err != nil {
			return err
		}
		in.There[u.ID] = there
	}
	return nil
}

// adopt takes the root's name from a session that came from this folder, unless a name is set already. It reports
// whether the session exists. If a part is imported, the caller has set the name.
func (in *Intake) adopt(ctx context.Context, u Entry, birthOf func(Entry) string) (there bool, err error) {
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

// isSameOrigin reports whether a session came from this folder, also if the folder was moved since.
func (in *Intake) isSameOrigin(have *events.Origin, birth string) bool {
	if have.Format != in.Format {
		return false
	}
	moved := birth != "" && have.Birth == birth || birth == "" && in.Adopted && have.Root == in.Root
	return have.Marker == in.Marker || moved
}

// Origin returns the origin that the import records for a session. The first name of the root stays.
func (in *Intake) Origin(s *projector.Session, birth string) *events.Origin {
	o := &events.Origin{Format: in.Format, Root: in.Root, Marker: in.Marker, Birth: birth}
	have := s.Ledger.Origin()
	if have != nil && in.Options.Part && have.Format == in.Format && have.Root != "" && have.Root != in.Root {
		return have // a tree shows it; its origin stays the folder that it was imported from
	}
	if have != nil && in.isSameOrigin(have, birth) {
		o.Root, o.Birth = cmp.Or(have.Root, o.Root), cmp.Or(o.Birth, have.Birth)
	}
	return o
}
