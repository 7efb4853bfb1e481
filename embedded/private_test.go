//go:build linux

package embedded_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

const nobody = 65534

func mustRefuse(t *testing.T, dir, path string, user int) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: dir, NoSync: true})
	if err == nil {
		s.Close()
	}
	refused, ok := errors.AsType[*embedded.OwnershipError](err)
	if !ok || refused.Path != path || refused.User != user || !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("got %v, want an OwnershipError of %s and %d", err, path, user)
	}
}

// A directory of another user is not used, and its mode is not changed: its owner could undo that.
func TestDirectoryOfAnotherUserIsRefused(t *testing.T) {
	testkit.Needs(t, os.Getuid() == 0, "root, to give files away")
	dir := filepath.Join(t.TempDir(), "store")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, dir, dir, nobody)
	entries, err := os.ReadDir(dir)
	info, statErr := os.Stat(dir)
	if err := errors.Join(err, statErr); err != nil || info.Mode().Perm() != 0o777 || len(entries) > 0 {
		t.Errorf("the directory: got mode %v, entries %v, %v", info.Mode(), entries, err)
	}
	if _, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir}); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("attach: got %v", err)
	}

	// A directory that is private now is refused if another user's file is in it.
	mine := filepath.Join(t.TempDir(), "mine")
	planted := filepath.Join(mine, "snapshots")
	if err := errors.Join(os.MkdirAll(planted, 0o777), os.Chown(planted, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, mine, planted, nobody)
}

// Data written to a store stay in its directory.
func TestPlantedLinkIsNotFollowed(t *testing.T) {
	for _, name := range []string{"snapshots", "jetstream", "segments", "damaged", "lock", "mark", "watermark", "owner.json", "views.db", "search.db-wal"} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			inUse := os.Mkdir(filepath.Join(dir, "segments"), 0o700) // the directory was a store before
			if name == "segments" {
				inUse = os.Remove(filepath.Join(dir, name))
			}
			if err := errors.Join(inUse, os.Symlink(elsewhere, filepath.Join(dir, name))); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, dir, filepath.Join(dir, name), -1)
			if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
				t.Errorf("got files outside of the directory: %v, %v", entries, err)
			}
		})
	}
	// The directory itself may be a link's target.
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, mustStart(t, embedded.ServerOptions{Dir: link, NoSync: true}).Log(), events.Session("", "s"), turn("", "x"))
}

// A store on a read-only file system is refused with ReadOnlyError, and stays unchanged.
func TestReadOnlyStore(t *testing.T) {
	testkit.Needs(t, os.Getuid() == 0, "root, to mount a directory")
	dir, mounted := t.TempDir(), t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true})
	mustAppend(t, s.Log(), events.Session("", "s"), turn("", "x"))
	mustClose(t, s)
	for _, args := range [][]string{{"mount", "--bind", dir, mounted}, {"mount", "-o", "remount,ro,bind", mounted}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mounted).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	for _, path := range []string{mounted, filepath.Join(mounted, "new")} {
		_, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: path, NoSync: true})
		readOnly, ok := errors.AsType[*embedded.ReadOnlyError](err)
		if !ok || readOnly.Dir != path || !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("%s: got %v, want a ReadOnlyError", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was created there: %v", err)
	}
}
