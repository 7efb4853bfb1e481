package layouts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Renderer writes sessions as files of some form.
type Renderer interface {
	// Name is the form's name, such as tallydir. Origins of sessions that were imported
	// from it carry it.
	Name() string

	// Files yields the files of a session's state, in the order of their paths.
	Files(ctx context.Context, src Source, s *projector.Session) iter.Seq2[File, error]

	// RootFiles yields the files of a root that belong to none of its sessions.
	RootFiles(ctx context.Context, src Source, root string) iter.Seq2[File, error]
}

// Layout is one foreign layout on disk. Its files can follow the state while it changes. What it
// has files for are units: a session with all that belongs to it, or a document.
type Layout interface {
	Renderer

	// Sniff reports whether path holds a folder of this layout.
	Sniff(path string) bool

	// Import brings a folder into a store.
	Import(ctx context.Context, target Target, path string, o ImportOptions) (Report, error)

	// Subject returns the session or document that a path below the root belongs to,
	// and whether there is one.
	Subject(ctx context.Context, src Source, root, path string) (events.Subject, bool)

	// ImportFrom brings what is in a storage into a store, as Import brings a folder.
	ImportFrom(ctx context.Context, target Target, st Storage, root Root, o ImportOptions) (Report, error)

	// Unit returns the unit whose files change when a session or document does, and false if it
	// has none in the root. It costs little: whether the unit has files says Place.
	Entry(ctx context.Context, src Source, root Root, sub events.Subject) (events.Subject, bool, error)

	// Place says where a unit has its files. One that has none in the root (any more) is
	// projector.ErrNotFound; so is a session that is archived. If the layout cannot have files for
	// a session, the error is a *LeftOutError.
	Location(ctx context.Context, src Source, root Root, entry events.Subject) (Location, error)

	// EntryFiles yields the files of a unit, in the order of their paths, with the unit at the
	// path that it has: one of its Place.
	EntryFiles(ctx context.Context, src Source, root Root, entry events.Subject, at string) iter.Seq2[File, error]

	// EntryAt returns the unit that a path is one of, or would be if there were a file, and false
	// if the layout has none there. Where what is in the file decides which unit it is, it is
	// the document that would keep the file, the same for all files that belong together, until
	// the file was brought in.
	EntryAt(ctx context.Context, src Source, root Root, path string) (events.Subject, bool, error)

	// Removal returns the parts of the append by which a unit is removed whose files are all
	// gone; none if it stays, and its files are written again.
	Removal(ctx context.Context, src Source, entry events.Subject) ([]log.Part, error)
}

// Root is a folder that sessions and documents come from, or that shows them.
type Root struct {
	Name   string // under which it is exported
	Marker string // of its place
}

// Grower is a Layout that can tell of some changes what they add to the ends of files, so that a line
// of a long log costs what the line costs.
type Grower interface {
	Layout

	// Growth finds out what the files of a unit have behind what they had as of an offset, with the
	// unit at the path that it had and has. All that is new since are records of the unit's own
	// subject, and of the others that are named. It is false if more may have changed than what it
	// finds: the unit's place, a file that went, anything before a file's end.
	//
	// known is what it found the last time of the unit, if that was as of the offset; else nil.
	Growth(ctx context.Context, src Source, root Root, entry events.Subject, at string, since events.Offset, others []events.Subject, known any) (Growth, bool, error)
}

// Sharer is a Layout with units of which records of other subjects change files too.
type Sharer interface {
	Layout

	// Others returns the subjects, beside a unit's own, whose records change a file of the unit.
	Others(entry events.Subject, path string) []events.Subject
}

// Growth is what files of a unit have more than they had. A file that it does not name is as it was.
type Growth struct {
	Added []Addition
	Known any // what need not be found out again, small; nil: nothing
}

// Addition is what a file has more than it had.
type Addition struct {
	Path string // as File has it
	Data []byte
	New  bool        // it is all of a file that was not there, or was another one
	Mode fs.FileMode // of that
}

// LeftOutError reports that a layout has no files for a session that is there. It matches
// projector.ErrNotFound.
type LeftOutError struct {
	Entry  events.Subject
	Reason string // the same for every session of its sort
}

func (e *LeftOutError) Error() string { return e.Entry.String() + " has no files: " + e.Reason }

// Unwrap returns projector.ErrNotFound.
func (e *LeftOutError) Unwrap() error { return projector.ErrNotFound }

// Location is where a unit has its files.
type Location struct {
	Path   string // of its file, or of the folder that all of its files are in
	Apart  string // in place of it, where a unit that began earlier has that path, or one that some system takes for the same; "": there is none
	Folder bool   // it is a folder

	// Files are names that no file of another unit has in the folder.
	Files []string
}

// Selector is a Layout of which a tree may have a part.
type Selector interface {
	// Select returns it with files for some kinds alone, none: for all, and for what is of a
	// layer, "": for what is usual in a folder that others see. What a store has no such files
	// for is an *events.InvalidError of kinds or layer.
	Select(kinds []string, layer string) (Layout, error)
}

// Chooser is a Renderer whose live sessions, those that no import brought, are not
// the conversations.
type Chooser interface {
	// Exports reports whether live sessions of a kind have files in the layout.
	Exports(kind string) bool
}

// Picker is a Renderer that has files for some sessions of a kind and not for others. It
// is asked instead of a Chooser.
type Picker interface {
	// Picks reports whether a session has files.
	Picks(ctx context.Context, s *projector.Session) (bool, error)
}

// Planner is a Renderer whose names of files depend on what else is there.
type Planner interface {
	// Planned returns it with the names that the files of a store have now.
	Planned(ctx context.Context, src Source) (Renderer, error)
}

// Rooted is a Renderer that has one root in a namespace, whatever was imported from where,
// and in it files that are no session's.
type Rooted interface {
	// Root is the name of the root.
	Root() string
	// HasFiles reports whether there are files, also if there is no session.
	HasFiles(ctx context.Context, src Source) (bool, error)
}

// File is a file of a state. Its content is made when it is written.
type File struct {
	Path  string // relative to the root, with slashes
	Mode  fs.FileMode
	Way   Way // how its bytes are kept
	Write func(w io.Writer) error
	Note  string // why it is not what was imported; "": it is, or it was not imported

	// Problem says what it lacks of what was imported, such as secrets for which there is no
	// key. It is written, and reported as a problem. "": nothing.
	Problem string
}

// ImportOptions of an import. The zero value works.
type ImportOptions struct {
	DryRun bool     // everything but appending: the report says what would be added
	Merge  bool     // take the folder's content also where a session came from elsewhere or moved on
	Only   []string // ids of the sessions to import; default: all, and the files beside them
	Part   bool     // what is not there is not gone: it is a part of a folder. A session that was archived is brought back

	// NoSecrets leaves out the values of secrets where a layout knows what is one; each is
	// reported as a problem. Default: they are sealed, and what has some is refused without a key.
	NoSecrets bool

	Progress func(Progress) // called often, one call at a time
}

// ErrUnknownLayout says that a path holds none of the layouts asked for.
var ErrUnknownLayout = errors.New("no known layout")

// Sniff finds the layout of a path among several.
func Sniff(path string, layouts ...Layout) (Layout, error) {
	for _, l := range layouts {
		if l.Sniff(path) {
			return l, nil
		}
	}
	return nil, fmt.Errorf("formats: %s: %w", path, ErrUnknownLayout)
}
