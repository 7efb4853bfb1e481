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

// Way says in which direction changes go.
type Way string

// The ways of a tree.
const (
	Both Way = "both"
	Out  Way = "out" // from the log to the files: what somebody writes to a file is kept as a conflict when the log changes it
	In   Way = "in"  // from the files to the log
)

// Config says what a tree shows, and where.
type Config struct {
	Name    string          // for people, events and files
	Layout  layouts.Layout  // what the files are like
	Root    layouts.Root    // what is in it
	Storage layouts.Storage // where they are; it belongs to the tree alone
	Target  layouts.Target  // the store
	Head    func(ctx context.Context) (events.Offset, error)

	Part      string           // of what Layout has files for: when it is another one, everything is placed anew
	Manifest  string           // file of what the tree remembers, which may be lost; "": in memory
	Way       Way              // default Both
	BulkLimit int              // changes at once beyond which it asks; default 50, negative: it never does
	Ignore    []string         // patterns of names, or of paths, that are not looked at; see path.Match
	MaxFile   int64            // of a file that is read, in bytes; default 64 MiB
	Now       func() time.Time // default time.Now; it says when something has settled, and nothing else
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

// Tree is a view over the log in files, and the way back. It is a projector.View, to be run by
// a projector.Runner with Room; Run is the other half. It is safe for concurrent use.
type Tree struct {
	c        Config
	manifest manifest
	wake     chan struct{} // has one when there is something new for Run

	heldRendered, heldEdit int64 // sizes; less in tests

	mu     sync.Mutex // guards what follows
	loaded bool
	state
	changed changes                    // of state, that the book does not have yet
	ofUnit  map[events.Subject]pathSet // of files
	folded  map[string]string          // folded path of a file -> its path

	dirty   map[events.Subject]touched // that were applied and not committed
	redo    map[events.Subject]bool    // to be shown again, whatever the log says
	knowns  map[events.Subject]known
	hashes  map[string]hashed       // of logs, by path
	moved   map[events.Subject]bool // that have another path than their files
	again   time.Time               // when what is stuck is tried again
	wait    time.Duration           // between the last two tries
	noticed map[string]*notice      // paths that may have changed
	edits   map[string]*edit        // paths that have, while the tree asks
	holding map[string]bool         // ids of conflicts that keep texts until somebody decides on them
	owed    []*edit                 // texts that were replaced before the log had them
	tried   map[string][]string     // what may stand in a file's place, as nobody answered when it was put there
	stuck   map[events.Subject]*Error
	told    map[string]string // why a path cannot be written, as it was logged last
	skipped map[string]string
	recent  []recently // edits that were taken in
	born    []birth
	held    time.Time // since when none was, as more may come
	asking  *BulkError
	names   names
	audit   time.Time // when everything is looked at again
	watched string
	unsure  bool          // something failed, and may have been done nevertheless
	rewatch bool          // it is to be watched where it is now
	audited bool          // since it was begun
	start   events.Offset // where the log ended when it was begun
}

// New returns a tree. Nothing is read or written before it is run.
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

// clear forgets everything that is in memory. The caller holds mu.
func (t *Tree) clear() {
	t.loaded, t.state, t.changed, t.ofUnit = false, newState(), changes{}, make(map[events.Subject]pathSet)
	t.knowns = make(map[events.Subject]known)
	t.moved, t.hashes = make(map[events.Subject]bool), make(map[string]hashed)
	t.folded = make(map[string]string)
	t.dirty, t.redo = make(map[events.Subject]touched), make(map[events.Subject]bool)
	t.noticed, t.edits = make(map[string]*notice), make(map[string]*edit)
	t.tried, t.owed, t.holding = make(map[string][]string), nil, make(map[string]bool)
	t.stuck, t.told, t.skipped = make(map[events.Subject]*Error), make(map[string]string), make(map[string]string)
	t.asking, t.names, t.audited = nil, newNames(), false
}

// Close stores what the tree remembers, and that it stopped by itself. Run has ended.
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

// Error says that a file of a tree could not be written. What it should show is in the log.
type Error struct {
	Tree string
	Path string
	Err  error
}

func (e *Error) Error() string { return "tree " + e.Tree + ": " + e.Path + ": " + e.Err.Error() }

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// as returns the store as of an offset. What is appended to it must still fit then.
func (t *Tree) as(at events.Offset) *past {
	p := &past{Target: t.c.Target, actor: "tree:" + t.c.Name}
	p.upto.Store(uint64(at))
	return p
}

// stir has Run look for what there is to do.
func (t *Tree) stir() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
