package lockfile

import (
	"errors"
	"path/filepath"
	"testing"
)

// One holder at a time has a lock. After its release another one can take it.
func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(path); !errors.Is(err, ErrLocked) {
		t.Errorf("take a held lock: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Take(path)
	if err != nil {
		t.Fatalf("take a released lock: %v", err)
	}
	second.Close()
}
