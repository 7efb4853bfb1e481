package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/durable"
)

// Kept is what Keep removed.
type Kept struct {
	Backups int   // removed
	Bytes   int64 // of contents that nothing names any more
}

// Keep removes all backups that are older than the newest n that can be read, and then the
// contents that none names any more. If it is ended between, the next one removes the
// rest. While a backup cannot be read, nobody knows which contents it names, and none is
// removed: the error says so.
func (w *Writer) Keep(n int) (k Kept, err error) {
	if n < 1 {
		return k, errors.New("backup: keep at least one backup")
	}
	old := w.before(n)
	for _, b := range w.list[:old] {
		if err := os.Remove(filepath.Join(w.dir, backupsDir, b.File)); err != nil {
			return k, err
		}
		k.Backups++
	}
	w.list = w.list[old:]
	// A manifest that is gone must stay gone before what it names is.
	if err := durable.SyncPath(filepath.Join(w.dir, backupsDir)); err != nil {
		return k, err
	}
	for _, b := range w.list {
		if b.Err != nil {
			return k, fmt.Errorf("%w: no content was removed, as it may need it", b.Err)
		}
	}
	k.Bytes, err = unused(w.dir, named(w.dir, w.list), os.Remove)
	return k, err
}

// before returns how many backups are older than the newest n that can be read.
func (w *Writer) before(n int) int {
	for i := len(w.list) - 1; i >= 0; i-- {
		if w.list[i].Err == nil {
			n--
		}
		if n == 0 {
			return i
		}
	}
	return 0
}
