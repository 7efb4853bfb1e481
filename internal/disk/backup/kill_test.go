package backup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/testkit"
)

// These variables tell the test binary, which a test starts again, its task and after how many syncs it ends, as if
// killed. It syncs before and after each visible step.
const (
	childLimit = "TALLY_TEST_BACKUP_LIMIT" // no file can grow beyond so many bytes, as on a full disk
	childDo    = "TALLY_TEST_BACKUP_DO"
	childFrom  = "TALLY_TEST_BACKUP_FROM"
	childTo    = "TALLY_TEST_BACKUP_TO"
	childSteps = "TALLY_TEST_BACKUP_STEPS"
)

const killed = 9 // the exit code

func TestMain(m *testing.M) {
	if do := os.Getenv(childDo); do != "" {
		child(do, os.Getenv(childFrom), os.Getenv(childTo))
	}
	os.Exit(m.Run())
}

func child(do, from, to string) {
	steps, err := strconv.Atoi(os.Getenv(childSteps))
	if err != nil {
		panic(err)
	}
	if limit := os.Getenv(childLimit); limit != "" {
		limitFiles(limit)
	}
	durable.Watch(func(string) {
		if steps--; steps == 0 {
			os.Exit(killed)
		}
	})
	if do == "restore" {
		err = restoreNewest(from, to)
	} else {
		err = takeAndKeep(from, to)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// second contains the files of the backup during which the child is killed.
var second = tree{"d/full.blk": "as it was", "d/growing.blk": "1234567", "d/new.blk": "another", "mark": "new"}

func takeAndKeep(from, to string) error {
	w, err := backup.Open(to)
	if err != nil {
		return err
	}
	if _, err := w.Take(context.Background(), backup.Manifest{Time: at, Log: "one"}, second.sources(from), quiet); err != nil {
		return err
	}
	_, err = w.Keep(1)
	return errors.Join(err, w.Close())
}

func restoreNewest(dir, target string) error {
	list, err := backup.List(dir)
	if err != nil {
		return err
	}
	m, err := backup.Find(list, "")
	if err != nil {
		return err
	}
	return m.Restore(context.Background(), dir, target, accept, quiet)
}

// each runs children that end at their first sync, their second, and so on, until one completes. It calls before ahead
// of each child, and after behind it.
func each(t *testing.T, do string, before func() (from, to string), after func(from, to string, done bool)) {
	t.Helper()
	testkit.NotUnderRace(t) // a killed process reports no races
	for steps := 1; ; steps++ {
		from, to := before()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDo+"="+do, childFrom+"="+from, childTo+"="+to, childSteps+"="+strconv.Itoa(steps))
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != killed {
			t.Fatalf("step %d: %v\n%s", steps, err, out)
		}
		after(from, to, err == nil)
		if t.Failed() {
			t.Fatalf("at step %d", steps)
		}
		if err != nil {
			continue
		}
		if steps < 8 {
			t.Errorf("the child was killed at only %d steps, want more", steps-1)
		}
		return
	}
}

// A backup that is killed at any step is never taken for complete: the one before stays the newest until the next is
// complete. Every backup can be restored, and the next run succeeds.
func TestKilledBackup(t *testing.T) {
	first := tree{"d/full.blk": "as it was", "d/growing.blk": "1234", "mark": "old"}
	counts := make(map[string]int)
	each(t, "take", func() (from, to string) {
		from, to = t.TempDir(), filepath.Join(t.TempDir(), "b")
		first.write(t, from)
		mustTake(t, to, first.sources(from))
		second.write(t, from)
		return from, to
	}, func(from, to string, done bool) {
		list := mustList(t, to)
		for _, b := range list {
			if b.Err != nil {
				t.Error(b.Err)
			}
		}
		counts[fmt.Sprint(len(list), " from ", list[0].Name)]++
		if list[0].Name == "20261122T150227.123Z" {
			mustRestore(t, to, list[0].Name, first)
		}
		if list[len(list)-1].Name == "20261122T150227.124Z" {
			mustRestore(t, to, "", second)
		}
		if v := mustVerify(t, to); len(v.Findings) > 0 || done && (v.Backups != 1 || v.Unused > 0) {
			t.Errorf("complete: %v; the verification reports %+v", done, v)
		}
		if err := takeAndKeep(from, to); err != nil {
			t.Error(err)
		}
		mustRestore(t, to, "", second)
		if v := mustVerify(t, to); v.Backups != 1 || len(v.Findings) > 0 || v.Unused > 0 {
			t.Errorf("after another run the verification reports %+v", v)
		}
		if left := read(t, to); len(left) != 5+2 { // contents, the manifest, and the file of the lock
			t.Errorf("the folder has %d files: %v", len(left), left)
		}
	})
	// The kills cover three states: only the old manifest, both manifests, only the new one.
	for _, want := range []string{"1 from 20261122T150227.123Z", "2 from 20261122T150227.123Z", "1 from 20261122T150227.124Z"} {
		if counts[want] == 0 {
			t.Errorf("no kill left the manifests %s: %v", want, counts)
		}
	}
}

// A first backup that is killed leaves a usable folder.
func TestKilledFirstBackup(t *testing.T) {
	each(t, "take", func() (from, to string) {
		from, to = t.TempDir(), filepath.Join(t.TempDir(), "a", "b")
		second.write(t, from)
		return from, to
	}, func(from, to string, _ bool) {
		list, err := backup.List(to)
		if is[*backup.NotFolderError](err) {
			err = nil
		}
		if err != nil {
			t.Error(err)
		}
		if len(list) > 0 {
			mustRestore(t, to, "", second)
		}
		if err := takeAndKeep(from, to); err != nil {
			t.Error(err)
		}
		mustRestore(t, to, "", second)
	})
}

// A restore that is killed at any step leaves either nothing or all files at its target. Stages names what it leaves
// beside the target, which does not disturb later restores.
func TestKilledRestore(t *testing.T) {
	from, dir := t.TempDir(), filepath.Join(t.TempDir(), "b")
	second.write(t, from)
	mustTake(t, dir, second.sources(from))
	each(t, "restore", func() (string, string) { return dir, filepath.Join(t.TempDir(), "new") }, func(_, target string, done bool) {
		_, err := os.Lstat(target)
		if there := err == nil; there {
			if got := read(t, target); !maps.Equal(got, second) {
				t.Errorf("the restored files are %v", got)
			}
		} else if done || len(backup.Stages(target)) != 1 {
			t.Errorf("complete: %v; beside the target are %v, error %v", done, backup.Stages(target), err)
		} else if err := restoreNewest(dir, target); err != nil {
			t.Error(err)
		}
	})
}
