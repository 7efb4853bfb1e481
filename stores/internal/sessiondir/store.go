package sessiondir

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// Store is the part of a layout that is a store's own. S is the store itself, F a session's folder
// as an import finds it, V renders the files of a session. A store embeds [Defaults].
type Store[S any, F Found[V], V View] interface {
	// Stamp returns what the events of an import carry.
	Stamp() Stamp
	// Shape returns how the folders are called and known.
	Shape() Shape
	// Exports implements layouts.Chooser.
	Exports(kind string) bool
	// Document names the document of a file that is kept whole.
	Document(ns, root, path string) events.Subject
	// View renders a session as it is. It reads nothing.
	View(src layouts.Source, s *projector.Session) V
	// Birth reads what the folder of a session says of its beginning.
	Birth(in *Intake, u Unit) string
	// List finds the files of a session's folder, and the session's id. It is called again if
	// somebody else wrote to the session meanwhile.
	List(ctx context.Context, at Folder) (F, error)

	// Begin returns the store for one import.
	Begin(in *Intake) (S, error)
	// Units lists the sessions to import. dir is the folder of their folders.
	Units(in *Intake, dir string) ([]Unit, error)
	// Parallel returns how many sessions are imported at the same time.
	Parallel() int
	// Named returns the session whose folder has a name.
	Named(ctx context.Context, src layouts.Source, name string) (events.Subject, bool)
	// Beside returns the id of the session that a file beside the sessions' folders is.
	Beside(path string) (id string, ok bool)
	// At checks the subject that a path has by its name. The store may return another one, and
	// returns false where an import would not read a file.
	At(ctx context.Context, src layouts.Source, path string, sub events.Subject) (events.Subject, bool)
	// Takes reports whether a file beside the sessions' folders is not to be kept whole.
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
	// File decides where the bytes of a path come from. ok is false if the session has no such
	// file.
	File(ctx context.Context, path string) (o Output, ok bool, err error)
}

// Found is a session's folder as an import finds it. It embeds a [Folder].
type Found[V View] interface {
	// Scan reads each file once. v is of the session that the folder is compared with.
	Scan(ctx context.Context, v V) error
	// Same reports whether folder and session agree on a file: on its bytes, or that there is none.
	Same(ctx context.Context, v V, path string) (bool, error)
	// Plan compares the folder with the session.
	Plan(ctx context.Context, v V, origin *events.Origin) (Plan, error)
	// Birth returns what the files say of the session's beginning.
	Birth() string

	// Base returns the folder that this one embeds.
	Base() *Folder
	// Status returns the session's status by its files, nil if they do not say it.
	Status() events.Raw
	// IsAt reports whether the session's own folder, which a view names, is this one.
	IsAt(dir string) bool
	// Leaves reports whether a file is not compared: it stays as the store has it.
	Leaves(path string) bool
	// Finish adds to the report of a session that was dealt with.
	Finish()
	// Close releases the memory that List reserved.
	Close()
}

// Plan is what has to happen so that a session gives its files back.
type Plan interface {
	// Contradicts reports whether that would undo what others did after the last import:
	// events of these types.
	Contradicts(since map[string]bool) bool
	// Apply carries it out.
	Apply(ctx context.Context) error
}

// Recaller is a Plan that may know what the session is behind it.
type Recaller[V View] interface {
	// Recall returns the session as it is. known is false if it has to be loaded.
	Recall(ctx context.Context) (v V, known bool, err error)
}

// Sealer is a Found whose files are spelled or kept once the session has all that is in them.
type Sealer[V View] interface {
	// Seal says how each file is spelled, which are kept whole, and which are gone.
	Seal(ctx context.Context, v V, origin *events.Origin) error
}

// Defaults implements the methods of Store that most stores leave as they are.
type Defaults struct{}

// Units implements Store: each folder is a session's.
func (Defaults) Units(in *Intake, dir string) ([]Unit, error) { return in.Units(dir) }

// Parallel implements Store: one session after the other.
func (Defaults) Parallel() int { return 1 }

// Named implements Store: folders are called after the ids.
func (Defaults) Named(ctx context.Context, src layouts.Source, name string) (events.Subject, bool) {
	id, ok := SessionOf(ctx, src, name)
	return events.Session(src.Namespace(), id), ok
}

// Beside implements Store: each session has a folder.
func (Defaults) Beside(string) (string, bool) { return "", false }

// At implements Store: the name is right.
func (Defaults) At(_ context.Context, _ layouts.Source, _ string, sub events.Subject) (events.Subject, bool) {
	return sub, true
}

// Takes implements Store: every file is kept.
func (Defaults) Takes(context.Context, *Intake, string) (bool, error) { return false, nil }

// Kept implements Store.
func (Defaults) Kept(context.Context, *Intake, *File) error { return nil }

// Base implements Found.
func (f *Folder) Base() *Folder { return f }

// Status implements Found.
func (f *Folder) Status() events.Raw { return nil }

// IsAt implements Found: a session does not say another folder than its id.
func (f *Folder) IsAt(string) bool { return true }

// Leaves implements Found: all files are compared.
func (f *Folder) Leaves(string) bool { return false }

// Finish implements Found.
func (f *Folder) Finish() {}

// Close implements Found.
func (f *Folder) Close() {}
