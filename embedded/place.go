package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/log"
)

// State is what a directory is, as a store.
type State string

// States. Of those that are no store, only the first two are made one.
const (
	Missing State = "missing" // nothing is there
	Empty   State = "empty"   // a directory with nothing in it
	Foreign State = "foreign" // other things, or what a nats-server by itself keeps
	Present State = "store"   // a store, or what is left of one
)

// Place is a store directory as its files say. Nothing was opened, locked or changed to
// know it, and an owner may be at work meanwhile.
type Place struct {
	Dir     string
	State   State
	Clean   bool          // its last owner stopped by itself; else one is at work, or was killed
	Durable events.Offset // the highest durable offset that its files know
	Servers []string      // versions of nats-server that wrote to it
	Unknown []string      // those of them, and of this program, whose files this program does not know
	Others  bool          // the rights of the directory let other users in; whoever opens it next ends that
	Lost    []log.Hole    // records that are known to be lost
}

// storeNames are those of which one at least is in a store that was ever opened.
var storeNames = []string{lockFile, markFile, watermarkFile, "segments", "snapshots", catalog.FileName}

// Look says what a directory is. The error says why it cannot be opened as it is:
// *ForeignError, *NewerError, *OwnershipError, or the system's; the place is what could be
// seen all the same.
func Look(dir string) (Place, error) {
	p := Place{Dir: dir, State: Missing}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case errors.Is(err, syscall.ENOTDIR) || err == nil && !info.IsDir():
		p.State = Foreign
		return p, &ForeignError{Dir: dir, File: true}
	case err != nil:
		return p, fmt.Errorf("embedded: %w: %v", log.ErrUnavailable, err)
	}
	names, err := namesIn(dir)
	switch {
	case err != nil:
		return p, fmt.Errorf("embedded: %w: %v", log.ErrUnavailable, err)
	case len(names) == 0:
		p.State = Empty
		return p, nil
	case !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(storeNames, name) }):
		p.State = Foreign
		return p, &ForeignError{Dir: dir, Holds: names, Server: slices.Contains(names, natsfile.Folder)}
	}
	p.State = Present
	err = p.read(info)
	return p, err
}

// systemNames are what a system puts into a directory that nobody uses yet.
var systemNames = []string{"lost+found", ".DS_Store"}

func namesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !slices.Contains(systemNames, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// read gathers what the files of a store say.
func (p *Place) read(info fs.FileInfo) error {
	if err := checkMine(p.Dir, info); err != nil {
		return err
	}
	p.Others = info.Mode().Perm()&0o077 != 0
	if err := checkEntries(p.Dir); err != nil {
		return err
	}
	m, err := loadMark(p.Dir)
	if newer, ok := errors.AsType[*NewerError](err); ok {
		return newer
	}
	p.Clean, p.Durable, p.Servers = m.Clean, max(m.Durable, loadWatermark(p.Dir)), m.Servers
	for _, version := range append(slices.Clone(m.Servers), serverVersion) {
		if !natsfile.Known(version) && !slices.Contains(p.Unknown, version) {
			p.Unknown = append(p.Unknown, version)
		}
	}
	p.Lost, err = readHoles(p.Dir)
	return err
}

// Writable returns why nothing can be written to a directory: *ReadOnlyError, or the
// system's error.
func Writable(dir string) error { return orReadOnly(dir, mayWrite(dir)) }

// loadMark reads the mark. One that is not there says nothing; one that cannot be read
// neither, and that is returned.
func loadMark(dir string) (m mark, err error) {
	if err := readState(filepath.Join(dir, markFile), markVersion, &m); !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	return mark{}, nil
}

// NewerError says that a newer version of tally wrote a store, in a form that this one
// does not know. Nothing was changed.
type NewerError struct {
	Dir            string
	File           string
	Version, Known int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("embedded: a newer version of tally wrote the store in %s (%s has version %d, this program knows %d): use that version", e.Dir, e.File, e.Version, e.Known)
}

// Unwrap returns log.ErrNewer.
func (e *NewerError) Unwrap() error { return log.ErrNewer }

// ForeignError says that a directory is not a store and does not become one: it holds
// what somebody else keeps there. Nothing was changed.
type ForeignError struct {
	Dir    string
	File   bool     // it is not a directory at all
	Server bool     // a nats-server keeps its streams there
	Holds  []string // the names in it
}

func (e *ForeignError) Error() string {
	const most = 3
	switch holds := e.Holds; {
	case e.File:
		return fmt.Sprintf("embedded: %s is a file, and a store is a directory", e.Dir)
	case e.Server:
		return fmt.Sprintf("embedded: %s is the directory of a nats-server, not of a store: reach that server with --server, or take another directory", e.Dir)
	case len(holds) > most:
		return fmt.Sprintf("embedded: %s is not a store: it holds %s and %d more; take a directory that is empty or not there yet", e.Dir, strings.Join(holds[:most], ", "), len(holds)-most)
	default:
		return fmt.Sprintf("embedded: %s is not a store: it holds %s; take a directory that is empty or not there yet", e.Dir, strings.Join(holds, ", "))
	}
}

// Unwrap returns log.ErrUnavailable.
func (e *ForeignError) Unwrap() error { return log.ErrUnavailable }
