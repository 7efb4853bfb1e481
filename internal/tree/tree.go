package tree

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// Way is the direction of changes.
type Way string

// The ways of a tree.
const (
	Both Way = "both"
	Out  Way = "out" // from the log to the files: an edit of a file is kept as a conflict when the log changes the file
	In   Way = "in"  // from the files to the log
)

// Config configures a tree.
type Config struct {
	Name    string          // for messages, events and files
	Layout  layouts.Layout  // format of the files
	Root    layouts.Root    // content of the tree
	Storage layouts.Storage // location of the files; the tree owns it
	Target  layouts.Target  // the store
	Head    func(ctx context.Context) (events.Offset, error)

	Part      string           // selection of Layout's content: if it changes, all paths are assigned again
	Manifest  string           // file of the manifest, which may be lost; "": in memory
	Way       Way              // default Both
	BulkLimit int              // number of simultaneous changes above which it asks; default 50, negative: never
	Ignore    []string         // patterns of ignored names or paths; see path.Match
	MaxFile   int64            // maximum size of a file that is read, in bytes; default 64 MiB
	Now       func() time.Time // default time.Now; used only to decide when a path has settled
	Logger    *slog.Logger     // default: discard
}

func (c *Config) withDefaults() {
	c.Way = cmp.Or(c.Way, Both)
	c.BulkLimit = cmp.Or(c.BulkLimit, 50)
	c.MaxFile = cmp.Or(c.MaxFile, 64<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Tree keeps files as a view of the log, and imports edits of them. It is a projector.View, for a projector.Runner with
// Room. Run is the other half. It is safe for concurrent use.
type Tree struct {
	c        Config
	manifest manifest
	wake     chan struct{} // holds a token when there is work for Run

	heldRendered, heldEdit int64 // sizes; smaller in tests

	mu     sync.Mutex // guards the fields below
	loaded bool
	state
	changed changes                    // unsaved changes of state
	ofEntry map[events.Subject]pathSet // paths of files by entry
	folded  map[string]string          // folded path of a file -> its path

	dirty   map[events.Subject]touched // applied and not committed
	redo    map[events.Subject]bool    // to be written again, regardless of the log
	knowns  map[events.Subject]knownEntry
	hashes  map[string]hashed       // of log files, by path
	moved   map[events.Subject]bool // entries whose path differs from that of their files
	again   time.Time               // when stuck files are retried
	wait    time.Duration           // between the last two attempts
	noticed map[string]*notice      // paths that may have changed
	edits   map[string]*edit        // paths with edits, while the tree asks
	holding map[string]bool         // ids of conflicts that keep texts until a user's decision
	owed    []*edit                 // texts that were replaced before the log had them
	tried   map[string][]string     // hashes of contents that may be at a path, because a write got no answer
	stuck   map[events.Subject]*Error
	told    map[string]string // last logged reason why a path cannot be written
	skipped map[string]string
	recent  []recently // imported edits
	born    []birth
	held    time.Time // since when imports wait for more changes
	asking  *BulkError
	names   names
	audit   time.Time // time of the next full examination
	watched string
	unsure  bool          // a call failed, and may have had an effect
	rewatch bool          // its current location must be watched
	audited bool          // the examination of all files has begun
	looked  bool          // all files were examined since the start
	start   events.Offset // end of the log at the start
}

// New returns a tree. It reads and writes nothing before it runs.
func New(c Config) (*Tree, error) {
	c.withDefaults()
	if c.Target.Namespace() == events.PersonalNamespace {
		return nil, &events.PersonalError{Where: "a tree"}
	}
	var b manifest = &memoryManifest{}
	if c.Manifest != "" {
		var err error
		if b, err = openManifest(c.Manifest, c.Target.Namespace(), c.Logger); err != nil {
			return nil, err
		}
	}
	return newTree(c, b), nil
}

func newTree(c Config, b manifest) *Tree {
	c.withDefaults()
	t := &Tree{c: c, manifest: b, wake: make(chan struct{}, 1), heldRendered: heldRendered, heldEdit: heldEdit}
	t.clear()
	return t
}

// clear forgets all state in memory. The caller holds mu.
func (t *Tree) clear() {
	t.loaded, t.state, t.changed, t.ofEntry = false, newState(), changes{}, make(map[events.Subject]pathSet)
	t.knowns = make(map[events.Subject]knownEntry)
	t.moved, t.hashes = make(map[events.Subject]bool), make(map[string]hashed)
	t.folded = make(map[string]string)
	t.dirty, t.redo = make(map[events.Subject]touched), make(map[events.Subject]bool)
	t.noticed, t.edits = make(map[string]*notice), make(map[string]*edit)
	t.tried, t.owed, t.holding = make(map[string][]string), nil, make(map[string]bool)
	t.stuck, t.told, t.skipped = make(map[events.Subject]*Error), make(map[string]string), make(map[string]string)
	t.asking, t.names, t.audited, t.looked = nil, newNames(), false, false
}

// Close saves the manifest, and that the tree stopped regularly. Run must have ended.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	if t.loaded && len(t.out) == 0 && t.pending() == 0 {
		t.changed.clean = true
		err = t.save(context.Background())
	}
	return errors.Join(err, t.manifest.close())
}

// Error reports that a file of a tree could not be written. Its content is in the log.
type Error struct {
	Tree string
	Path string
	Err  error
}

func (e *Error) Error() string { return "tree " + e.Tree + ": " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// as returns the store as of an offset. Appends through it fail if the log has changed since.
func (t *Tree) as(at events.Offset) *past {
	p := &past{Target: t.c.Target, actor: "tree:" + t.c.Name}
	p.upto.Store(uint64(at))
	return p
}

// stir wakes Run.
func (t *Tree) stir() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
