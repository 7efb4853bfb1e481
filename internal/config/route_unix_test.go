//go:build unix

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/config"
)

// A pipe in place of a project's file does not block.
func TestRoutingOfPipe(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.home, "pipe", config.FileName)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.must(config.Overrides{}).Routing().Of(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want an error that names %s", err, path)
	}
}
