package sessiondir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
)

// Tree is the imported folder, wherever it is, for as long as the import lasts.
type Tree struct {
	ctx context.Context // the import's
	st  layouts.Storage

	target layouts.Target // it may know what time it is
}

// NewTree returns the folder that is to be imported into a target.
func NewTree(ctx context.Context, st layouts.Storage, target layouts.Target) Tree {
	return Tree{ctx, st, target}
}

// Open opens a file.
func (t Tree) Open(name string) (io.ReadCloser, error) { return t.st.Read(t.ctx, name) }

// Entries lists a folder, "." for the root, sorted by name. The names are those of the
// storage, whatever their encoding.
func (t Tree) Entries(name string) ([]layouts.Entry, error) {
	if name == "." {
		name = ""
	}
	return t.st.List(t.ctx, name)
}

// IsDir reports whether there is a folder of a name.
func (t Tree) IsDir(name string) bool {
	e, err := t.st.Stat(t.ctx, name)
	return err == nil && e.Dir
}

// IsOdd reports whether an entry is neither a file nor a folder, such as a link: it is not
// looked into.
func IsOdd(e layouts.Entry) bool { return !e.Dir && e.Size < 0 }

// Oldest returns the time at which the first of some files was changed last. Where the storage
// knows of no such time it is what the store calls now, or the beginning of all times if the
// store has no clock.
func (t Tree) Oldest(files ...*File) (events.Timestamp, error) {
	oldest := time.Time{}
	for _, f := range files {
		if !f.Age.IsZero() && (oldest.IsZero() || f.Age.Before(oldest)) {
			oldest = f.Age
		}
	}
	if store, ok := t.target.(logTimer); ok && oldest.IsZero() {
		var err error
		if oldest, err = store.LogTime(t.ctx); err != nil {
			return "", err
		}
	}
	return events.TimestampOf(oldest), nil
}

// LineOf returns the line of a place in a file.
func LineOf(data []byte, err error) int {
	if e, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		return 1 + bytes.Count(data[:min(int(e.Offset), len(data))], []byte("\n"))
	}
	return 0
}

// ReasonOf returns what is wrong without the place.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		return e.Reason
	}
	return err.Error()
}
