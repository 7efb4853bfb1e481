// Package snapshot keeps states between loads, to shorten the next load. A snapshot is only a cache: its reader
// verifies it, and folds the log if it is not valid.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"github.com/tallylog/tally/events"
)

// Meta identifies a snapshot: its subject, fold and offset.
type Meta struct {
	Subject events.Subject
	Fold    string // name of the fold
	Version int    // of the fold: another version cannot be read
	Offset  events.Offset
	EventID string     // id of the event at Offset: if the log has another one there, it is another log
	Live    []Interval // the live list of the state
	Hash    string     // SHA-256 of the data, hex
	Kept    string     // why pruning keeps it, such as "fork target"; "": pruning may remove it
}

// Interval is a stretch of the live list, both ends inclusive.
type Interval struct{ From, To events.Offset }

// Snapshot is a stored state.
type Snapshot struct {
	Meta
	Data []byte
}

// ErrNotFound reports that there is no such snapshot.
var ErrNotFound = errors.New("snapshot: not found")

// CorruptError reports that stored data are not a snapshot as it was written.
type CorruptError struct {
	Name   string // of the file or key
	Reason string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("snapshot %s: %s", e.Name, e.Reason) }

// Store keeps snapshots. Implementations are safe for concurrent use.
type Store interface {
	// List returns the snapshots of one subject and fold, newest first, of any version. It omits unreadable ones;
	// Verify reports them.
	List(ctx context.Context, sub events.Subject, fold string) ([]Meta, error)
	// Get reads a snapshot and checks its hash. Besides I/O errors it returns *CorruptError or ErrNotFound.
	Get(ctx context.Context, m Meta) (Snapshot, error)
	// Put stores a snapshot and sets its Hash. It replaces one with the same subject, fold, version and offset.
	Put(ctx context.Context, s Snapshot) error
	// Delete removes a snapshot. It is not an error if the snapshot does not exist.
	Delete(ctx context.Context, m Meta) error
	// All yields every snapshot, a *CorruptError for everything else that is stored, and other errors for what cannot
	// be read. It continues after errors.
	All(ctx context.Context) iter.Seq2[Meta, error]
	// Discard removes what All reported as a *CorruptError, by its Name. It is not an error if it does not exist.
	Discard(ctx context.Context, name string) error
}

// Eraser is a Store that can remove parts so that their content is in none of its files.
type Eraser interface {
	// Erase removes everything that it has of subjects, readable or not. Since returns a Store whose Put fails from the
	// next Erase on: the fold of a snapshot may have begun before content was erased.
	Erase(ctx context.Context, subjects ...events.Subject) error
	Since() Store
}

// ErrErased reports a Put of a fold that began before the last Erase.
var ErrErased = errors.New("snapshot: content was erased meanwhile")

// Sum returns the hash of a snapshot's data.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
