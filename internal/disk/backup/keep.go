package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/durable"
)

// Kept counts the removals of Keep.
type Kept struct {
	Backups int   // removed
	Bytes   int64 // of contents that no backup names any more
}

// Keep removes all backups older than the newest n readable ones, and then the contents that no backup names. If it is
// killed in between, the next call removes the rest. While a backup cannot be read, its contents are unknown; then Keep
// removes no contents and returns an error.
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
	// The removal of a manifest must be durable before its contents are removed.
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

// before returns how many backups are older than the newest n readable ones.
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
