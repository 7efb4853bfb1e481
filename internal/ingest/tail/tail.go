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

// Bounds of unacknowledged deliveries.
const (
	fileLines  = 512      // of one file
	fileBytes  = 4 << 20  // of one file; a longer line goes alone
	totalBytes = 64 << 20 // of all files; a longer line goes alone
)

// A Root is a folder that is followed, including its subfolders. It may not exist yet, and may be a symbolic link.
type Root struct {
	Path string
	ID   string // name in File and in the state; unique
}

// Options configure a Tailer. Only Roots is required.
type Options struct {
	Roots []Root
	// State is the path of the file with the read positions; its lock is beside it. With a Resume function, losing it
	// loses no data. "": no state.
	State string
	// Wants reports whether a file is read; rel is its path below the root, with slashes.
	// nil: every file.
	Wants func(root, rel string) bool
	// Enters reports whether a folder is followed. nil: every folder.
	Enters func(root, rel string) bool
	// Resume returns the caller's position in a file that is missing in the state, or that changed since. The later
	// position counts. nil or false: unknown. head returns the first line, like Head.
	Resume func(f File, head func() []byte) (Position, bool)
	// Whole reports whether text after the last line feed is a complete value, which is then delivered without an end.
	// nil: never.
	Whole func(line []byte) bool
	// Order assigns files of a root to groups. Files of a group are read in the order of their positions, unless they
	// were started already. A file waits until all existing names were examined and the files before it were read to
	// their ends or cannot be read. nil, no group, or position "", which is the first: the file does not wait.
	Order func(root, rel string) (group, position string)
	// Follows reports whether a file may be another file under a new name, given that it has its content. head returns
	// its first line. nil: always.
	Follows func(from, to File, head func() []byte) bool
	// Since skips files that are missing in the state and have not changed since this time. Once such a file changes,
	// it is read from its beginning. Zero: every file is read.
	Since time.Time
	// Once makes Next return io.EOF when all existing content was delivered. Nothing is watched, and content without a
	// line feed is not waited for.
	Once bool

	MaxLine    int           // maximum bytes of a line; longer lines are delivered in parts. Default 64 MiB
	MaxFiles   int           // maximum number of files and folders; Status reports more. Default 200,000
	MaxWatches int           // maximum number of watched folders; the others are polled. -1: none. Default: the system's limit
	Live       time.Duration // files that changed within it have priority. Default 10 min
	Quiet      time.Duration // time without a change before content without a line feed is delivered. Default 30 s
	Grace      time.Duration // after which a missing file counts as gone. Default 2 s
	Folders    time.Duration // between checks of the times of folders. Default 5 s
	Files      time.Duration // between checks of the times of files. Default 60 s
	Poll       time.Duration // between checks of files that changed within 24 h in folders without a watch. Default 1 s
	Save       time.Duration // minimum time between writes of the state. Default 1 s

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

// A Position is a caller's position in a file. Its data about the content are compared with the file. If the file has
// other content, it is delivered from its beginning as Rewritten. The same happens later if the file is replaced,
// compressed, or written without growing, because the content before Offset was not read and cannot be compared.
type Position struct {
	Offset int64
	Head   []byte // beginning of the file, as far as known
	Before []byte // content right before Offset, as far as known
	Note   string // of the file, see Batch
}

// A Tailer follows folders. Next, Ack, Kick, Status and Close are safe for concurrent use. Concurrent calls of Next are
// served one at a time.
type Tailer struct {
	o Options

	mu      sync.Mutex // guards all fields below but mail; Next holds it while it works, not while it waits
	closed  bool
	roots   []*rootState
	folders map[fileKey]*folderState
	byPath  map[string]*folderState // by watched path
	lost    map[fileKey]*file       // known missing files
	byNode  map[node]*file
	byStem  map[string]*file // newest of each stem; file.nextStem links the others
	files   int              // number of existing files
	full    bool             // MaxFiles was reached

	prints   *prints
	journal  *journal
	lock     *os.File
	dirty    map[*file]bool
	stateErr error

	watch     *fsnotify.Watcher
	watches   int // number of watched folders
	unwatched int // number of other folders

	agenda  agenda
	turns   int // number of calls of step
	woke    time.Time
	ready   ready
	torn    map[*file]bool // files with recent content without a line feed
	absent  map[*file]bool // missing files that were not reported
	again   map[*file]bool // files with a recent failed read
	behind  map[*file]bool // files that wait for others of their group
	groups  map[groupKey]map[*file]bool
	broken  map[fileKey]*Problem
	unnamed bool // further problems were not listed

	packedFile *file // the open compressed file
	packed     *fileContent
	waiting    []*file // files that wait for its end

	beforeOpen func(path string) error // for tests: between the check of a file and its opening

	mail mailbox
}

// mailbox holds requests of other goroutines for Next.
type mailbox struct {
	sync.Mutex
	acks  []*Batch
	kicks []string
	skips []File
	wake  chan struct{} // capacity 1
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

// ErrClosed is returned by Next after Close.
var ErrClosed = errors.New("tail: closed")

// Open creates a Tailer. It reads the state, but no folder yet. If another process holds the state, the error is
// lockfile.ErrLocked.
func Open(o Options) (*Tailer, error) {
	t := &Tailer{
		o:       o.withDefaults(),
		folders: make(map[fileKey]*folderState),
		byPath:  make(map[string]*folderState),
		lost:    make(map[fileKey]*file),
		byNode:  make(map[node]*file),
		byStem:  make(map[string]*file),
		dirty:   make(map[*file]bool),
		torn:    make(map[*file]bool),
		again:   make(map[*file]bool),
		behind:  make(map[*file]bool),
		groups:  make(map[groupKey]map[*file]bool),
		absent:  make(map[*file]bool),
		broken:  make(map[fileKey]*Problem),
	}
	t.mail.wake = make(chan struct{}, 1)
	ids := make(map[string]bool)
	for _, r := range o.Roots {
		path, err := filepath.Abs(r.Path)
		if err != nil || ids[r.ID] {
			return nil, fmt.Errorf("tail: root %q at %q: given twice, or without a path: %v", r.ID, r.Path, err)
		}
		ids[r.ID] = true
		t.roots = append(t.roots, &rootState{id: r.ID, path: path})
	}
	if err := t.openState(); err != nil {
		return nil, err
	}
	if !o.Once && t.o.MaxWatches > 0 {
		t.watch, _ = fsnotify.NewBufferedWatcher(1024) // without it, folders are polled
	}
	t.agenda.begin(t)
	return t, nil
}

// openState locks and reads the state.
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

// Close writes the state, releases its lock, and ends a waiting Next. Unacknowledged batches are delivered again by the
// next Tailer.
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

// Kick has a file examined and delivered before all others. It ignores paths outside the roots and unwanted files.
func (t *Tailer) Kick(path string) {
	t.mail.put(func() {
		if len(t.mail.kicks) < 1000 { // excess calls are ignored; the file is noticed anyway
			t.mail.kicks = append(t.mail.kicks, path)
		}
	})
}

// isNotThere reports whether an error means that a name does not exist.
func isNotThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isNotDir(err)
}
