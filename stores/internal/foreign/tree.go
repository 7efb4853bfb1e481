package foreign

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// Tree is the imported folder.
type Tree struct {
	Root *os.Root
}

// Open opens a file.
func (t Tree) Open(name string) (io.ReadCloser, error) { return t.Root.Open(name) }

// Entries lists a folder, sorted by name. The names are those of the file system,
// whatever their encoding.
func (t Tree) Entries(name string) ([]fs.DirEntry, error) {
	f, err := t.Root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(-1)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
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
