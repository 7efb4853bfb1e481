package backup

import (
	"testing"
	"time"
)

// SetSettled sets how long a file must have been unchanged to get a stamp, until the test ends.
func SetSettled(t *testing.T, d time.Duration) {
	before := settled
	settled = d
	t.Cleanup(func() { settled = before })
}

// ObjectPath returns the path of a content in a folder of backups.
func ObjectPath(dir string, p Part) string { return object(dir, p.Sum) }

// MaxParts is the maximum number of parts of a file.
const MaxParts = maxParts
