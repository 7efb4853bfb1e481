package catalog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/lockfile"
)

// ErrKept reports that another process keeps the views of a directory.
var ErrKept = errors.New("catalog: another process maintains the views")

// Keep takes the lock for writing the views of a directory that belongs to no store, or returns ErrKept. The lock lasts
// until it is closed or the process ends. It only avoids useless work: two writers without it detect each other at
// their next commit.
func Keep(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	f, err := lockfile.Take(filepath.Join(dir, "views.lock"))
	if errors.Is(err, lockfile.ErrLocked) {
		return nil, fmt.Errorf("%w of %s", ErrKept, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %s: %w", dir, err)
	}
	return f, nil
}
