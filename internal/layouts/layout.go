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

// Renderer writes sessions as files in some layout.
type Renderer interface {
	// Name returns the layout's name, such as tallydir. The origin of an imported session has it.
	Name() string

	// Files yields the files of a session's state, in the order of their paths.
	Files(ctx context.Context, src Source, s *projector.Session) iter.Seq2[File, error]

	// RootFiles yields the files of a root that belong to no session.
	RootFiles(ctx context.Context, src Source, root string) iter.Seq2[File, error]
}

// Layout is a foreign layout of files that can be imported, exported, and kept up to date with the state. The files
// are grouped into entries: a session with all its files, or a document.
type Layout interface {
	Renderer

	// Sniff reports whether path has a folder of this layout.
	Sniff(path string) bool

	// Import imports a folder into a store.
	Import(ctx context.Context, target Target, path string, o ImportOptions) (Report, error)

	// Subject returns the session or document that a path below the root belongs to, and whether there is one.
	Subject(ctx context.Context, src Source, root, path string) (events.Subject, bool)

	// ImportFrom imports the content of a storage into a store, as Import does for a folder.
	ImportFrom(ctx context.Context, target Target, st Storage, root Root, o ImportOptions) (Report, error)

	// Entry returns the entry whose files depend on a session or document, and false if the root has none for it. It
	// is cheap and does not check whether the entry has files; Location does.
	Entry(ctx context.Context, src Source, root Root, sub events.Subject) (events.Subject, bool, error)

	// Location returns where an entry has its files. If it has none in the root, or is an archived session, the error
	// is projector.ErrNotFound. If the layout cannot have files for a session, the error is a *LeftOutError.
	Location(ctx context.Context, src Source, root Root, entry events.Subject) (Location, error)

	// EntryFiles yields the files of an entry, in the order of their paths. at is the entry's path, one of the paths
	// of its Location.
	EntryFiles(ctx context.Context, src Source, root Root, entry events.Subject, at string) iter.Seq2[File, error]

	// EntryAt returns the entry that a path belongs to, whether or not the file exists. It returns false if the layout
	// has no entry there. If the content of a file decides its entry, EntryAt returns the document that would keep the
	// file, the same for all files that belong together, until the file is imported.
	EntryAt(ctx context.Context, src Source, root Root, path string) (events.Subject, bool, error)

	// Removal returns the parts of the append that removes an entry whose files were all deleted. If the entry stays,
	// it returns none, and the files are written again.
	Removal(ctx context.Context, src Source, entry events.Subject) ([]log.Part, error)
}

// Root is a folder from which sessions and documents are imported, or that shows them.
type Root struct {
	Name   string // name under which it is exported
	Marker string // identifies the folder by its real path
}

// Grower is a Layout that can compute for some changes which bytes they add to the ends of files. So a new line of a
// long log costs only that line.
type Grower interface {
	Layout

	// Growth returns the bytes that the files of an entry gained after the offset since. at is the entry's path, then
	// and now. Only records of the entry's own subject and of others are new since then. Growth returns false if more
	// may have changed: the entry's path, a removed file, or bytes before the end of a file.
	//
	// known is Growth.Known of the previous call for the entry, if that was as of since; else nil.
	Growth(ctx context.Context, src Source, root Root, entry events.Subject, at string, since events.Offset, others []events.Subject, known any) (Growth, bool, error)
}

// Sharer is a Layout with entries whose files also depend on other subjects.
type Sharer interface {
	Layout

	// Others returns the other subjects whose records change a file of the entry.
	Others(entry events.Subject, path string) []events.Subject
}

// Growth lists the bytes that files of an entry gained. Other files are unchanged.
type Growth struct {
	Added []Addition
	Known any // small result for the next call of Growth; nil: none
}

// Addition is the bytes that one file gained.
type Addition struct {
	Path string // as File has it
	Data []byte
	New  bool        // Data is the whole file, which is new or replaced
	Mode fs.FileMode // of a new file
}

// LeftOutError reports that a layout has no files for an existing session. It matches projector.ErrNotFound.
type LeftOutError struct {
	Entry  events.Subject
	Reason string // the same for all such sessions
}

func (e *LeftOutError) Error() string { return e.Entry.String() + " has no files: " + e.Reason }

// Unwrap returns projector.ErrNotFound.
func (e *LeftOutError) Unwrap() error { return projector.ErrNotFound }

// Location is the path of an entry's files.
type Location struct {
	Path   string // of the file, or of the folder with all files
	Apart  string // used instead of Path if an older entry has that path, or one that some system treats as equal; "": none
	Folder bool   // Path is a folder

	// Files lists names in the folder that no other entry may use.
	Files []string
}

// Selector is a Layout that a tree can show in part.
type Selector interface {
	// Select returns the layout restricted to some kinds of documents, and to a layer. No kinds means all kinds; layer
	// "" means the usual content of a shared folder. If the store has no such files, the error is an
	// *events.InvalidError of kinds or layer.
	Select(kinds []string, layer string) (Layout, error)
}

// Chooser is a Renderer that selects live sessions, which were not imported, by kind. A layout without it exports
// conversations.
type Chooser interface {
	// Exports reports whether live sessions of a kind have files in the layout.
	Exports(kind string) bool
}

// Picker is a Renderer that selects sessions one by one. Export asks it instead of a Chooser.
type Picker interface {
	// Picks reports whether a session has files.
	Picks(ctx context.Context, s *projector.Session) (bool, error)
}

// Planner is a Renderer whose file names depend on the other sessions and documents.
type Planner interface {
	// Planned returns the renderer with the current file names of a store.
	Planned(ctx context.Context, src Source) (Renderer, error)
}

// Rooted is a Renderer with one root for each namespace, for all imports. The root also has files outside of
// sessions.
type Rooted interface {
	// Root returns the name of the root.
	Root() string
	// HasFiles reports whether the root has files, with or without sessions.
	HasFiles(ctx context.Context, src Source) (bool, error)
}

// File is a file of a state. Write produces its content.
type File struct {
	Path  string // relative to the root, with slashes
	Mode  fs.FileMode
	Way   Way // how its bytes are kept
	Write func(w io.Writer) error
	Note  string // why it differs from the imported file; "": it does not, or it was not imported

	// Problem describes content of the import that the file lacks, such as secrets without a key. The file is written,
	// and the problem reported. "": none.
	Problem string
}

// ImportOptions of an import. The zero value works.
type ImportOptions struct {
	DryRun bool     // append nothing; the report says what would be added
	Merge  bool     // import the content also if the session came from elsewhere or was changed since
	Only   []string // ids of the sessions to import; default: all, with the files outside of sessions
	Part   bool     // the folder is a part: missing files are not deleted, and archived sessions are brought back

	// NoSecrets omits the values of secrets that the layout recognises, and reports each as a problem. By default they
	// are sealed; without a key a file with secrets is refused.
	NoSecrets bool

	Progress func(Progress) // called often, one call at a time
}

// ErrUnknownLayout reports that a path has none of the known layouts.
var ErrUnknownLayout = errors.New("unknown layout")

// Sniff returns the layout of a path.
func Sniff(path string, layouts ...Layout) (Layout, error) {
	for _, l := range layouts {
		if l.Sniff(path) {
			return l, nil
		}
	}
	return nil, fmt.Errorf("layouts: %s: %w", path, ErrUnknownLayout)
}
