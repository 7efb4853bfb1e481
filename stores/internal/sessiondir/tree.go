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

// Tree is the folder of an import. It is valid as long as the import lasts.
type Tree struct {
	ctx context.Context // the import's
	st  layouts.Storage

	target layouts.Target // it may have a clock
}

// NewTree returns the folder st for an import into a target.
func NewTree(ctx context.Context, st layouts.Storage, target layouts.Target) Tree {
	return Tree{ctx, st, target}
}

// Open opens a file.
func (t Tree) Open(name string) (io.ReadCloser, error) { return t.st.Read(t.ctx, name) }

// Entries lists a folder, "." for the root, sorted by name. Names are as the storage has them, in any encoding.
func (t Tree) Entries(name string) ([]layouts.FileInfo, error) {
	if name == "." {
		name = ""
	}
	return t.st.List(t.ctx, name)
}

// IsDir reports whether name is a folder.
func (t Tree) IsDir(name string) bool {
	e, err := t.st.Stat(t.ctx, name)
	return err == nil && e.Dir
}

// IsOdd reports whether an entry is neither a file nor a folder, such as a link. It is not read.
func IsOdd(e layouts.FileInfo) bool { return !e.Dir && e.Size < 0 }

// Oldest returns the oldest time of a last change among the files. If the storage has no times, Oldest returns the
// store's current time, or the zero time if the store has no clock.
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

// LineOf returns the line of a JSON syntax error in data, 0 for other errors.
func LineOf(data []byte, err error) int {
	if e, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		return 1 + bytes.Count(data[:min(int(e.Offset), len(data))], []byte("\n"))
	}
	return 0
}

// ReasonOf returns the text of an error without the position.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		return e.Reason
	}
	return err.Error()
}
