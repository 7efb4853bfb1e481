//go:build !windows

package durable_test

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
)

// A write that is cut off by a full disk, here by a limit, leaves the old content.
func TestReplaceCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limit := before
	limit.Cur = 4096
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	err := durable.Replace(path, bytes.Repeat([]byte("x"), 10_000), 0o600, durable.WithSync)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Fatal("a write beyond the limit succeeded")
	}
	mustHold(t, path, "old", 0)
}
