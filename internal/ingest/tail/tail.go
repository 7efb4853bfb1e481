package tail

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tallylog/tally/internal/disk/lockfile"
)

// Bounds of what is delivered and not acknowledged.
const (
	fileLines  = 512      // of one file
	fileBytes  = 4 << 20  // of one file; a longer line goes alone
	totalBytes = 64 << 20 // of all files; a longer line goes alone
)

// A Root is a folder that is followed, with all folders in it. It need not be there yet. It
// may be a symbolic link itself.
type Root struct {
	Path string
	ID   string // names it in File and in the state; unique
}

// Options say what is followed and how. Only Roots is required.
type Options struct {
	Roots []Root
	// State is the path of the file in which is kept how far each file was read; its lock
	// is beside it. Losing it loses nothing if there is a Resume. "": none is kept.
	State string
	// Wants reports whether a file is read; rel is its path below the root, with slashes.
	// nil: every file.
	Wants func(root, rel string) bool
	// Enters reports whether a folder is looked at. nil: every folder.
	Enters func(root, rel string) bool
	// Resume says where to go on with a file that the state does not know, or that changed
	// since the state was written: what is further counts. nil, or false: the caller does
	// not know. head returns what the file begins with, as Head does.
	Resume func(f File, head func() []byte) (Position, bool)
	// Whole reports whether what follows the last line feed is a whole value, which is
	// delivered without an end. nil: nothing is.
	Whole func(line []byte) bool
	// Order says that files of a root belong together: those of a group are read in the order
	// of their places, as far as they were not begun. A file waits until all that is there was
	// looked at, and those before it were read to their ends, or cannot be read. nil, no group,
	// or no place, which is the first: a file waits for none.
	Order func(root, rel string) (group, location string)
	// Follows reports whether a file may be another one under a new name, if it has its
	// content; head returns what it begins with. nil: it may.
	Follows func(from, to File, head func() []byte) bool
	// Since leaves a file alone that the state does not know, as long as it was not changed
	// since then; after that it is read from its beginning. Zero: every file is read.
	Since time.Time
	// Once has Next return io.EOF when everything that is there was delivered. Nothing is
	// watched, and what has no line feed is not waited for.
	Once bool

	MaxLine    int           // bytes of a line; a longer one is delivered in pieces. Default 64 MiB
	MaxFiles   int           // files and folders that are remembered; more are counted in Status. Default 200,000
	MaxWatches int           // folders that are watched; the others are polled. -1: none. Default: as many as the system gives
	Live       time.Duration // a file that changed within it goes before others. Default 10 min
	Quiet      time.Duration // for which what has no line feed must not have changed. Default 30 s
	Grace      time.Duration // after which a missing file counts as gone. Default 2 s
	Folders    time.Duration // between looks at the times of folders. Default 5 s
	Files      time.Duration // between looks at the times of files. Default 60 s
	Poll       time.Duration // between looks at files that changed within 24 h in folders that are not watched. Default 1 s
	Save       time.Duration // between writes of the state, at least. Default 1 s

	Now func() time.Time // default time.Now
}

func (o Options) withDefaults() Options {
	o.MaxLine = cmp.Or(o.MaxLine, 64<<20)
	o.MaxFiles = cmp.Or(o.MaxFiles, 200_000)
	o.MaxWatches = cmp.Or(o.MaxWatches, maxWatches)
	o.Live = cmp.Or(o.Live, 10*time.Minute)
	o.Quiet = cmp.Or(o.Quiet, 30*time.Second)
	o.Grace = cmp.Or(o.Grace, 2*time.Second)
	o.Folders = cmp.Or(o.Folders, 5*time.Second)
	o.Files = cmp.Or(o.Files, time.Minute)
	o.Poll = cmp.Or(o.Poll, time.Second)
	o.Save = cmp.Or(o.Save, time.Second)
	if o.Wants == nil {
		o.Wants = func(string, string) bool { return true }
	}
	if o.Enters == nil {
		o.Enters = func(string, string) bool { return true }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// A Position is a place in a file that a caller knows from elsewhere. What it says of the
// content is compared with the file; if the file holds something else, it is delivered from
// its beginning as Rewritten. So it is later if it was replaced or compressed, or written to
// without growing: what is before Offset was not read, and so is not known to be the same.
type Position struct {
	Offset int64
	Head   []byte // with which the file begins, as far as known
	Before []byte // what is right before Offset, as far as known
	Note   string // of the file, as Batch has it
}

// A Tailer follows folders. Next, Ack, Kick, Status and Close are safe for concurrent use;
// one goroutine at a time is served by Next.
type Tailer struct {
	o Options

	mu      sync.Mutex // guards all below but mail; Next holds it while it works, not while it waits
	closed  bool
	roots   []*root
	folders map[key]*folder
	byPath  map[string]*folder // by what is watched
	lost    map[key]*file      // that are known and not there
	byNode  map[node]*file
	byStem  map[string]*file // the newest; file.sameStem leads on
	files   int              // that are there
	full    bool             // MaxFiles were reached

	prints   *prints
	journal  *journal
	lock     *os.File
	dirty    map[*file]bool
	stateErr error

	watch     *fsnotify.Watcher
	watches   int // folders that are watched
	unwatched int // folders that are not

	agenda  agenda
	turns   int // of step
	woke    time.Time
	ready   ready
	torn    map[*file]bool // have content without a line feed that is not old enough
	absent  map[*file]bool // are missing and not said to be gone
	again   map[*file]bool // could not be read a moment ago
	behind  map[*file]bool // wait for others of their group
	groups  map[group]map[*file]bool
	broken  map[key]*Problem
	unnamed bool // there were more problems than are kept

	packedFile *file // the compressed file that is read
	packed     *content
	waiting    []*file // for that to be over

	beforeOpen func(path string) error // for tests: between the look at a file and its opening

	mail mailbox
}

// mailbox is what other goroutines leave for Next.
type mailbox struct {
	sync.Mutex
	acks  []*Batch
	kicks []string
	skips []File
	wake  chan struct{} // of one place
}

func (m *mailbox) put(leave func()) {
	m.Lock()
	leave()
	m.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// ErrClosed is what Next returns of a Tailer that was closed.
var ErrClosed = errors.New("tail: closed")

// Open begins to follow. It reads the state and looks at no folder yet. If another process
// holds the state, the error is lockfile.ErrLocked.
func Open(o Options) (*Tailer, error) {
	t := &Tailer{
		o:       o.withDefaults(),
		folders: make(map[key]*folder),
		byPath:  make(map[string]*folder),
		lost:    make(map[key]*file),
		byNode:  make(map[node]*file),
		byStem:  make(map[string]*file),
		dirty:   make(map[*file]bool),
		torn:    make(map[*file]bool),
		again:   make(map[*file]bool),
		behind:  make(map[*file]bool),
		groups:  make(map[group]map[*file]bool),
		absent:  make(map[*file]bool),
		broken:  make(map[key]*Problem),
	}
	t.mail.wake = make(chan struct{}, 1)
	ids := make(map[string]bool)
	for _, r := range o.Roots {
		path, err := filepath.Abs(r.Path)
		if err != nil || ids[r.ID] {
			return nil, fmt.Errorf("tail: root %q at %q: named twice, or without a path: %v", r.ID, r.Path, err)
		}
		ids[r.ID] = true
		t.roots = append(t.roots, &root{id: r.ID, path: path})
	}
	if err := t.openState(); err != nil {
		return nil, err
	}
	if !o.Once && t.o.MaxWatches > 0 {
		t.watch, _ = fsnotify.NewBufferedWatcher(1024) // without one, folders are polled
	}
	t.agenda.begin(t)
	return t, nil
}

// openState takes the lock of the state and reads it.
func (t *Tailer) openState() error {
	var key [32]byte
	rand.Read(key[:])
	if t.o.State == "" {
		t.prints = newPrints(key)
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.o.State), 0o700); err != nil {
		return fmt.Errorf("tail: state: %w", err)
	}
	lock, err := lockfile.Take(t.o.State + ".lock")
	if err != nil {
		return fmt.Errorf("tail: state %s: %w", t.o.State, err)
	}
	records, key, err := readJournal(t.o.State, key)
	if err == nil {
		t.journal, err = writeJournal(t.o.State, key, records)
	}
	if err != nil {
		lock.Close()
		return fmt.Errorf("tail: state: %w", err)
	}
	t.lock, t.prints = lock, newPrints(key)
	for _, rec := range records {
		t.restore(rec)
	}
	return nil
}

// Close writes the state, gives its lock up, and ends a Next that waits. What was delivered
// and not acknowledged is delivered again by the next Tailer.
func (t *Tailer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.mail.put(func() {})
	t.takeAcks()
	err := t.save()
	if t.watch != nil {
		err = errors.Join(err, t.watch.Close())
	}
	t.closePacked()
	for _, r := range t.roots {
		r.close()
	}
	if t.journal != nil {
		err = errors.Join(err, t.journal.close(), t.lock.Close())
	}
	return err
}

// Kick has a file looked at, and delivered before all others. A path that is not below a
// root, or not wanted, does nothing.
func (t *Tailer) Kick(path string) {
	t.mail.put(func() {
		if len(t.mail.kicks) < 1000 { // whoever kicks that often is not heard; the file is seen anyway
			t.mail.kicks = append(t.mail.kicks, path)
		}
	})
}

// isNotThere reports whether an error says that there is nothing of a name.
func isNotThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isNotDir(err)
}
