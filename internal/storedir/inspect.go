package storedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/log"
)

// State classifies a directory.
type State string

// States of a directory. A store may be created in a directory that is missing or empty.
const (
	Missing State = "missing" // the directory does not exist
	Empty   State = "empty"   // the directory has no entries
	Foreign State = "foreign" // a file, another program's directory, or a nats-server's own directory
	Present State = "store"   // a store, or the remains of a store
)

// Info describes a store directory by its files. [Inspect] neither opens the store nor locks or changes it, so an owner
// may be at work meanwhile.
type Info struct {
	Dir     string
	State   State
	Clean   bool          // the last owner stopped by itself; otherwise an owner is at work or was killed
	Durable events.Offset // the highest durable offset that the files name
	Servers []string      // versions of nats-server that wrote to the store
	Others  bool          // the directory's mode lets other users in; the next owner makes it private
	Lost    []log.Hole    // records that are known to be lost
}

// Unknown returns the server versions whose files this program does not know, of those that wrote to the store and of
// the version that would serve it now.
func (i Info) Unknown(server string) (unknown []string) {
	for _, version := range append(slices.Clone(i.Servers), server) {
		if !natsfile.Known(version) && !slices.Contains(unknown, version) {
			unknown = append(unknown, version)
		}
	}
	return unknown
}

// storeNames lists the store's own entries. A store that was ever opened has at least one of them.
var storeNames = []string{LockFile, markFile, WatermarkFile, "segments", "snapshots", catalog.FileName}

// Inspect classifies a directory and reads the store's files in it. If the directory cannot be opened as a store, the
// error is a *ForeignError, *NewerError, *OwnershipError or the system's, and the Info holds the facts read so far.
func Inspect(dir string) (Info, error) {
	i := Info{Dir: dir, State: Missing}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return i, nil
	case errors.Is(err, syscall.ENOTDIR) || err == nil && !info.IsDir():
		i.State = Foreign
		return i, &ForeignError{Dir: dir, File: true}
	case err != nil:
		return i, fmt.Errorf("embedded: %w: %v", log.ErrUnavailable, err)
	}
	names, err := namesIn(dir)
	switch {
	case err != nil:
		return i, fmt.Errorf("embedded: %w: %v", log.ErrUnavailable, err)
	case len(names) == 0:
		i.State = Empty
		return i, nil
	case !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(storeNames, name) }):
		i.State = Foreign
		return i, &ForeignError{Dir: dir, Holds: names, Server: slices.Contains(names, natsfile.Folder)}
	}
	i.State = Present
	err = i.read(info)
	return i, err
}

// systemNames lists entries that an operating system puts into unused directories.
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

// read fills in the facts of the store's files.
func (i *Info) read(info fs.FileInfo) error {
	if err := checkMine(i.Dir, info); err != nil {
		return err
	}
	i.Others = info.Mode().Perm()&0o077 != 0
	if err := checkEntries(i.Dir); err != nil {
		return err
	}
	m, err := LoadMark(i.Dir)
	if newer, ok := errors.AsType[*NewerError](err); ok {
		return newer
	}
	i.Clean, i.Durable, i.Servers = m.Clean, max(m.Durable, LoadWatermark(i.Dir)), m.Servers
	i.Lost, err = ReadHoles(i.Dir)
	return err
}

// NewerError reports that a newer version of tally wrote the store, in a format that this version does not know.
// Nothing was changed.
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

// ForeignError reports that a path is not a store and may not become one, as it has other content. Nothing was changed.
type ForeignError struct {
	Dir    string
	File   bool     // Dir is a file
	Server bool     // a nats-server keeps its streams in Dir
	Holds  []string // the entries' names
}

func (e *ForeignError) Error() string {
	const maxNames = 3
	switch holds := e.Holds; {
	case e.File:
		return fmt.Sprintf("embedded: %s is a file: want the directory of a store", e.Dir)
	case e.Server:
		return fmt.Sprintf("embedded: %s is the directory of a nats-server, not of a store: reach that server with --server, or take another directory", e.Dir)
	case len(holds) > maxNames:
		return fmt.Sprintf("embedded: %s is not a store: it holds %s and %d more; take a directory that is empty or not there yet", e.Dir, strings.Join(holds[:maxNames], ", "), len(holds)-maxNames)
	default:
		return fmt.Sprintf("embedded: %s is not a store: it holds %s; take a directory that is empty or not there yet", e.Dir, strings.Join(holds, ", "))
	}
}

// Unwrap returns log.ErrUnavailable.
func (e *ForeignError) Unwrap() error { return log.ErrUnavailable }
