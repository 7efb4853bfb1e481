package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// OwnedError reports that another process owns the directory. PID and URL are zero while that process starts or stops,
// and if its owner file cannot be read; then Err is set.
type OwnedError struct {
	Dir string
	PID int
	URL string
	Err error

	Crowded bool // the process answers, but has no connection left
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

// takeLock takes the directory's lock, for as long as the file is open. If another process holds it, the error is an
// *OwnedError.
func takeLock(dir string) (*os.File, error) {
	f, err := storedir.TakeLock(dir)
	if errors.Is(err, lockfile.ErrLocked) {
		o, _ := storedir.ReadOwner(dir)
		return nil, &OwnedError{Dir: dir, PID: o.PID, URL: o.URL}
	}
	return f, err
}

// Errors of a store's directory.
type (
	// ForeignError reports that a path is not a store and may not become one, as it has other content. Nothing was
	// changed. It unwraps to log.ErrUnavailable.
	ForeignError = storedir.ForeignError

	// NewerError reports that a newer version of tally wrote the store, in a format that this version does not know.
	// Nothing was changed. It unwraps to log.ErrNewer.
	NewerError = storedir.NewerError

	// OwnershipError reports that a store's directory, or an entry in it, belongs to another user or is a symbolic
	// link. Nothing was changed. It unwraps to log.ErrUnavailable.
	OwnershipError = storedir.OwnershipError

	// ReadOnlyError reports that the store lies on a read-only file system. The store can be read and takes no appends.
	// It unwraps to log.ErrUnavailable.
	ReadOnlyError = storedir.ReadOnlyError

	// NoOwnerError reports that no process serves the directory. The caller may start one.
	NoOwnerError = storedir.NoOwnerError
)

// Attached accesses the log of a directory that another process owns.
type Attached struct {
	events *log.Log
	conns  []*nats.Conn
	owner  storedir.Owner
}

// Attach opens the log of a directory through the process that owns it. It uses the options Dir, Logger and
// MinDurability. If no process owns the directory, the error is a *NoOwnerError. After the owner has ended, calls
// return log.ErrUnavailable or log.ErrUnknown.
func Attach(ctx context.Context, o ServerOptions) (*Attached, error) {
	o = o.withDefaults()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: attach %s: %v", o.Dir, err)
	}
	if err := storedir.CheckOwner(dir); err != nil {
		return nil, err // another user could redirect this process
	}
	a := &Attached{}
	a.owner, err = storedir.ReadOwner(dir)
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
	holes, err := storedir.ReadHoles(dir)
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("embedded: attach %s: %w", dir, err)
	}
	c := log.Config{Logger: o.Logger, MinDurability: o.MinDurability, Host: log.Host{
		Reads: a.conns[1], Via: true, Holes: holes,
		Segments: log.Segments{Dir: storedir.SegmentsDir(dir), Blocks: blocksOf(dir, knownTo(dir, a.conns[1].ConnectedServerVersion()))},
	}}
	if a.owner.Durability == log.Durable.String() {
		c.Host.Durability = log.Durable
	}
	if a.events, err = log.Open(ctx, a.conns[0], c); err != nil {
		// The owner may have been killed meanwhile, and another process will own the directory.
		gone := slices.ContainsFunc(a.conns, func(nc *nats.Conn) bool { return !nc.IsConnected() })
		a.Close()
		if gone && ctx.Err() == nil {
			return nil, &NoOwnerError{Dir: dir, Err: err}
		}
		return nil, err
	}
	return a, nil
}

// Log returns the log of the directory. Close closes it.
func (a *Attached) Log() *log.Log { return a.events }

// URL returns the URL of the owner's server.
func (a *Attached) URL() string { return a.owner.URL }

// OwnerPID returns the process id of the owner.
func (a *Attached) OwnerPID() int { return a.owner.PID }

// Close waits for the appends under way and closes the connections.
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
