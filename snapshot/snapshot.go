// Package snapshot keeps states between loads, to make the next load short. A
// snapshot is a cache, never the truth: a reader of one verifies it and folds
// the log if anything is amiss.
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

// Meta says of what, where and by which fold a snapshot was made.
type Meta struct {
	Subject events.Subject
	Fold    string // name of the fold
	Version int    // of the fold: another version cannot be read
	Offset  events.Offset
	EventID string     // id of the event at Offset: a log that holds another one there is another log
	Live    []Interval // the live list that the state is folded from
	Hash    string     // SHA-256 of the data, hex
	Kept    string     // why pruning leaves it alone, such as "rewind target"; "" if it does not
}

// Interval is a stretch of the live list, both ends inclusive.
type Interval struct{ From, To events.Offset }

// Snapshot is a stored state.
type Snapshot struct {
	Meta
	Data []byte
}

// ErrNotFound says that there is no such snapshot.
var ErrNotFound = errors.New("snapshot: not found")

// CorruptError says that what is stored cannot be a snapshot as it was written.
type CorruptError struct {
	Name   string // of the file or key
	Reason string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("snapshot %s: %s", e.Name, e.Reason) }

// Store keeps snapshots. Implementations are safe for concurrent use.
type Store interface {
	// List returns what is stored of one subject and fold, newest first, whatever its
	// version. What cannot be read at all is left out and reported by Verify.
	List(ctx context.Context, sub events.Subject, fold string) ([]Meta, error)
	// Get reads a snapshot and checks its hash. A *CorruptError or ErrNotFound are
	// the answers to expect besides I/O errors.
	Get(ctx context.Context, m Meta) (Snapshot, error)
	// Put stores a snapshot, in the place of one of the same subject, fold, version
	// and offset. It sets Hash.
	Put(ctx context.Context, s Snapshot) error
	// Delete removes one snapshot; that there is none is not an error.
	Delete(ctx context.Context, m Meta) error
	// All yields every snapshot, a *CorruptError for each thing that is not one, and
	// other errors for what cannot be read; it goes on behind both.
	All(ctx context.Context) iter.Seq2[Meta, error]
	// Discard removes what All reported as a *CorruptError, by its Name; there
	// being none is not an error.
	Discard(ctx context.Context, name string) error
}

// Sum is the hash of a snapshot's data.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
