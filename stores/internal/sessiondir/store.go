package sessiondir

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// Store is the part of a layout that depends on the store. S is the store itself, F a session's folder during an
// import, V renders the files of a session. A store embeds [Defaults].
type Store[S any, F Found[V], V View] interface {
	// Stamp returns the format and source for the events of an import.
	Stamp() Stamp
	// Shape returns how the folders are named and recognised.
	Shape() Shape
	// Exports implements layouts.Chooser.
	Exports(kind string) bool
	// Document returns the document of a file that is kept whole.
	Document(ns, root, path string) events.Subject
	// View returns the renderer of a session's state. It reads nothing.
	View(src layouts.Source, s *projector.Session) V
	// Birth reads the beginning of a session from its folder; see events.Origin.
	Birth(in *Intake, u Entry) string
	// List finds the files of a session's folder, and the session's id. It is called again if another writer appended
	// to the session meanwhile.
	List(ctx context.Context, at Folder) (F, error)

	// Begin returns the store for one import.
	Begin(in *Intake) (S, error)
	// Entries lists the sessions to import. dir is the folder that holds their folders.
	Entries(in *Intake, dir string) ([]Entry, error)
	// Parallel returns how many sessions are imported at the same time.
	Parallel() int
	// Named returns the session whose folder has a name.
	Named(ctx context.Context, src layouts.Source, name string) (events.Subject, bool)
	// Beside returns the id of the session that a file beside the sessions' folders contains.
	Beside(path string) (id string, ok bool)
	// At checks the subject that a path's name implies, and may return another one. It returns false if an import
	// would not read the file.
	At(ctx context.Context, src layouts.Source, path string, sub events.Subject) (events.Subject, bool)
	// Takes reports whether a file beside the sessions' folders is left out, not kept whole.
	Takes(ctx context.Context, in *Intake, full string) (bool, error)
	// Kept is called with each file that was kept whole.
	Kept(ctx context.Context, in *Intake, f *File) error
}

// View renders the files of a session.
type View interface {
	// Dir returns the session's folder below the root; "" is the root.
	Dir() string
	// Paths lists the files that the session may have, sorted.
	Paths(ctx context.Context) ([]string, error)
	// File decides where the bytes of a path come from. ok is false if the session has no such file.
	File(ctx context.Context, path string) (o Output, ok bool, err error)
}

// Found is a session's folder during an import. It embeds a [Folder].
type Found[V View] interface {
	// Scan reads each file once. v is the view of the session that the folder is compared with.
	Scan(ctx context.Context, v V) error
	// Same reports whether folder and session have the same bytes for a file, or both lack it.
	Same(ctx context.Context, v V, path string) (bool, error)
	// Plan compares the folder with the session.
	Plan(ctx context.Context, v V, origin *events.Origin) (Plan, error)
	// Birth returns the session's beginning as the files record it.
	Birth() string

	// Base returns the embedded folder.
	Base() *Folder
	// Status returns the session's status as the files record it, nil if they do not.
	Status() events.Raw
	// IsAt reports whether dir, the folder that a view uses for the session, is this folder.
	IsAt(dir string) bool
	// Leaves reports whether a file is not compared: the store keeps its version.
	Leaves(path string) bool
	// Finish adds details to the report of an imported session.
	Finish()
	// Close releases the memory that List reserved.
	Close()
}

// Plan lists the changes after which a session renders the imported files.
type Plan interface {
	// Contradicts reports whether the plan would undo events that others appended after the last import. since has the
	// types of these events.
	Contradicts(since map[string]bool) bool
	// Apply carries out the plan.
	Apply(ctx context.Context) error
}

// Recaller is a Plan that may know the session's state after it was applied.
type Recaller[V View] interface {
	// Recall returns the session's view. known is false if the session has to be loaded.
	Recall(ctx context.Context) (v V, known bool, err error)
}

// Sealer is a Found that records the spelling of its files, or keeps them whole, after the plan was applied.
type Sealer[V View] interface {
	// Seal records how each file is spelled, which files are kept whole, and which are gone.
	Seal(ctx context.Context, v V, origin *events.Origin) error
}

// Defaults implements the methods of Store that most stores do not change.
type Defaults struct{}

// Entries implements Store: each folder is a session.
func (Defaults) Entries(in *Intake, dir string) ([]Entry, error) { return in.Entries(dir) }

// Parallel implements Store: one session after the other.
func (Defaults) Parallel() int { return 1 }

// Named implements Store: folders are named after the ids.
func (Defaults) Named(ctx context.Context, src layouts.Source, name string) (events.Subject, bool) {
	id, ok := SessionOf(ctx, src, name)
	return events.Session(src.Namespace(), id), ok
}

// Beside implements Store: each session has a folder.
func (Defaults) Beside(string) (string, bool) { return "", false }

// At implements Store: the name decides.
func (Defaults) At(_ context.Context, _ layouts.Source, _ string, sub events.Subject) (events.Subject, bool) {
	return sub, true
}

// Takes implements Store: every file is kept whole.
func (Defaults) Takes(context.Context, *Intake, string) (bool, error) { return false, nil }

// Kept implements Store.
func (Defaults) Kept(context.Context, *Intake, *File) error { return nil }

// Base implements Found.
func (f *Folder) Base() *Folder { return f }

// Status implements Found.
func (f *Folder) Status() events.Raw { return nil }

// IsAt implements Found: the name of the folder follows from the session's id.
func (f *Folder) IsAt(string) bool { return true }

// Leaves implements Found: all files are compared.
func (f *Folder) Leaves(string) bool { return false }

// Finish implements Found.
func (f *Folder) Finish() {}

// Close implements Found.
func (f *Folder) Close() {}
