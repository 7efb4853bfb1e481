package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/log"
)

const (
	ownerFile    = "owner.json"
	lockFile     = "lock"
	ownerVersion = 1 // of the format of owner.json
)

// owner is what other processes of this user must know to attach.
type owner struct {
	Version    int    `json:"version"`
	PID        int    `json:"pid"`
	URL        string `json:"url"`
	User       string `json:"user"`
	Token      string `json:"token"`
	Durability string `json:"durability"`
}

// OwnedError says that another process owns the directory. PID and URL are zero
// while it starts or stops, or if what it wrote of itself cannot be read, which Err says.
type OwnedError struct {
	Dir string
	PID int
	URL string
	Err error

	Crowded bool // it answers, and has as many connections as it may have
}

func (e *OwnedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("embedded: attach %s: another process owns it, and where it serves it is not known: %v", e.Dir, e.Err)
	}
	if e.Crowded {
		return fmt.Sprintf("embedded: attach %s: process %d owns it and has as many connections as it may have", e.Dir, e.PID)
	}
	if e.PID == 0 {
		return fmt.Sprintf("embedded: start %s: another process owns it", e.Dir)
	}
	return fmt.Sprintf("embedded: start %s: process %d owns it and serves %s", e.Dir, e.PID, e.URL)
}

// Unwrap returns log.ErrUnavailable, and Err.
func (e *OwnedError) Unwrap() []error {
	if e.Err == nil {
		return []error{log.ErrUnavailable}
	}
	return []error{log.ErrUnavailable, e.Err}
}

// NoOwnerError says that no process serves the directory: start it.
type NoOwnerError struct {
	Dir string
	Err error // of the attempt; may be nil
}

func (e *NoOwnerError) Error() string {
	msg := fmt.Sprintf("embedded: attach %s: no process serves it", e.Dir)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// takeLock takes the directory's lock, which lasts as long as the file is open:
// the system gives it up for a process that was killed.
func takeLock(dir string) (*os.File, error) {
	f, err := lockfile.Take(filepath.Join(dir, lockFile))
	switch {
	case errors.Is(err, lockfile.ErrLocked):
		o, _ := readOwner(dir)
		return nil, &OwnedError{Dir: dir, PID: o.PID, URL: o.URL}
	case err != nil:
		return nil, fmt.Errorf("embedded: start %s: %w: lock: %v", dir, log.ErrUnavailable, err)
	}
	return f, nil
}

// OwnerOf returns the process that serves a directory, or was killed when it did, and
// where. A directory that was left in order is not owned: then it is 0.
func OwnerOf(dir string) (pid int, url string) {
	o, err := readOwner(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1, "" // somebody is there, whoever it is
	}
	return o.PID, o.URL
}

func readOwner(dir string) (o owner, err error) {
	text, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return owner{}, fmt.Errorf("%s cannot be read: %v", ownerFile, err)
	}
	switch {
	case o.Version > ownerVersion:
		return owner{}, &NewerError{Dir: dir, File: ownerFile, Version: o.Version, Known: ownerVersion}
	case o.Version < ownerVersion:
		return owner{}, fmt.Errorf("%s has version %d, this program knows %d", ownerFile, o.Version, ownerVersion)
	}
	return o, nil
}

// writeOwner puts the file there whole, for this user alone. It has no checksum: clients in other
// languages read it, and what is wrong in it does not connect.
func writeOwner(dir string, o owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, ownerFile), append(text, '\n'), 0o600, durable.NoSync)
}

func removeOwner(dir string) error { return remove(filepath.Join(dir, ownerFile)) }

// readState reads what an owner wrote down. What a newer version of tally wrote is
// *NewerError.
func readState(path string, version int, v any) error {
	err := statefile.Read(path, version, v)
	if newer, is := errors.AsType[*statefile.NewerError](err); is {
		return &NewerError{Dir: filepath.Dir(path), File: filepath.Base(path), Version: newer.Version, Known: newer.Known}
	}
	return err
}

func isDamagedFile(err error) bool {
	_, is := errors.AsType[*statefile.DamageError](err)
	return is
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Attached is the log of a directory that another process owns.
type Attached struct {
	events *log.Log
	conns  []*nats.Conn
	owner  owner
}

// Attach opens the log of a directory through the process that owns it. Of the
// options Dir, Logger and MinDurability matter. It returns *NoOwnerError if there is no such
// process, or none any more; when the owner ends, calls return log.ErrUnavailable or
// log.ErrUnknown.
func Attach(ctx context.Context, o ServerOptions) (*Attached, error) {
	o = o.withDefaults()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: attach %s: %v", o.Dir, err)
	}
	if err := checkOwner(dir); err != nil {
		return nil, err // somebody else says there where the owner is
	}
	a := &Attached{}
	a.owner, err = readOwner(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &NoOwnerError{Dir: dir}
	case err != nil:
		return nil, &OwnedError{Dir: dir, Err: err}
	}
	for range 2 {
		nc, err := nats.Connect(a.owner.URL, nats.UserInfo(a.owner.User, a.owner.Token), nats.Name("tally attached"), nats.ReconnectBufSize(-1),
			nats.ReconnectWait(100*time.Millisecond), nats.MaxReconnects(50), nats.Timeout(5*time.Second))
		if err != nil {
			a.Close()
			return nil, &NoOwnerError{Dir: dir, Err: err}
		}
		a.conns = append(a.conns, nc)
	}
	holes, err := readHoles(dir)
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("embedded: attach %s: %w", dir, err)
	}
	c := log.Config{Logger: o.Logger, MinDurability: o.MinDurability, Host: log.Host{
		Reads: a.conns[1], Via: true, Holes: holes,
		Segments: log.Segments{Dir: segmentsDir(dir), Blocks: blocksOf(dir, knownTo(dir, a.conns[1].ConnectedServerVersion()))},
	}}
	if a.owner.Durability == log.Durable.String() {
		c.Host.Durability = log.Durable
	}
	if a.events, err = log.Open(ctx, a.conns[0], c); err != nil {
		// The owner may have been killed meanwhile: another process will own the directory.
		gone := slices.ContainsFunc(a.conns, func(nc *nats.Conn) bool { return !nc.IsConnected() })
		a.Close()
		if gone && ctx.Err() == nil {
			return nil, &NoOwnerError{Dir: dir, Err: err}
		}
		return nil, err
	}
	return a, nil
}

// Log is the log of the directory. It is closed with a.
func (a *Attached) Log() *log.Log { return a.events }

// URL is where the owner serves.
func (a *Attached) URL() string { return a.owner.URL }

// OwnerPID is the process id of the owner.
func (a *Attached) OwnerPID() int { return a.owner.PID }

// Close waits for the appends under way and leaves the owner.
func (a *Attached) Close() error {
	var err error
	if a.events != nil {
		err = a.events.Close()
	}
	for _, nc := range a.conns {
		nc.Close()
	}
	return err
}
