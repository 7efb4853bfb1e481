package backup

import (
	"testing"
	"time"
)

// SetSettled sets for how long a file must not have been changed, until a test is over.
func SetSettled(t *testing.T, d time.Duration) {
	before := settled
	settled = d
	t.Cleanup(func() { settled = before })
}

// ObjectPath is where a content is kept.
func ObjectPath(dir string, p Part) string { return object(dir, p.Sum) }

// MaxParts bounds the parts of a file.
const MaxParts = maxParts
