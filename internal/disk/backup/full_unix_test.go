//go:build unix

package backup_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// limitFiles makes writes fail that would make a file longer than the limit.
func limitFiles(bytes string) {
	n, err := strconv.ParseUint(bytes, 10, 64)
	if err != nil {
		panic(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	limit.Cur = n
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
}

// mustFill checks that a child process fails with the error of a full disk.
func mustFill(t *testing.T, do, from, to string, bytes int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDo+"="+do, childFrom+"="+from, childTo+"="+to, childSteps+"=0", childLimit+"="+strconv.Itoa(bytes))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), syscall.EFBIG.Error()) {
		t.Errorf("%s with %d bytes: %v\n%s", do, bytes, err, out)
	}
}

// A full disk ends a backup and a restore with an error, and changes nothing else: no half backup, nothing at the
// target.
func TestFullDisk(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	first := tree{"d/full.blk": "as it was", "mark": "old"}
	first.write(t, from)
	mustTake(t, dir, first.sources(from))
	second.write(t, from)
	// The limits leave room for a part of a content, or for all contents and a part of the manifest.
	for _, bytes := range []int{5, 100} {
		mustFill(t, "take", from, dir, bytes)
		list := mustList(t, dir)
		if len(list) != 1 || list[0].Err != nil {
			t.Errorf("limit of %d bytes: the backups are %v", bytes, list)
		}
		for name := range read(t, dir) {
			if strings.Contains(name, "tmp") {
				t.Errorf("limit of %d bytes: the backup left %s", bytes, name)
			}
		}
		mustRestore(t, dir, "", first)
	}
	if err := takeAndKeep(from, dir); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	mustFill(t, "restore", dir, filepath.Join(parent, "new"), 5)
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("the restore left %v, error %v", left, err)
	}
}
