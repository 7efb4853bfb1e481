package record

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/lockfile"
)

// stateName returns the beginning of the names of the state files for a watch of a namespace, "" if no state can be
// kept.
func stateName(c config.Config, namespace string) string {
	name, dir := c.StoreName(), config.StateFolder(os.Getenv)
	if name == "" || dir == "" {
		return ""
	}
	name = filepath.Join(dir, "watch-"+name)
	if namespace != events.DefaultNamespace {
		name += "-" + namespace
	}
	return name
}

// stateFile returns the file with the progress of a group. Progress with and without redaction, and of one project and
// of all, is kept in different files.
func stateFile(c config.Config, g *locationGroup) string {
	name := stateName(c, g.namespace)
	if !g.redact {
		name += unredacted
	}
	if c.Routing().Only != "" {
		name += ofProject
	}
	return name + ".db"
}

// unredacted marks state files of watches without redaction.
const unredacted = "-clear"

// ofProject marks state files of watches that record one project.
const ofProject = "-project"

// lockFiles returns the lock files that a watch needs, in the order in which each watch takes them.
func lockFiles(c config.Config, groups []*locationGroup) ([]string, error) {
	var paths []string
	for _, g := range groups {
		name := stateName(c, g.namespace)
		if name == "" {
			return nil, nil
		}
		paths = append(paths, name+".lock")
	}
	slices.Sort(paths)
	return slices.Compact(paths), os.MkdirAll(config.StateFolder(os.Getenv), 0o700)
}

// pauseToLock is the pause before a second attempt to take a lock.
const pauseToLock = 200 * time.Millisecond

// takeLock takes a lock. Without wait it returns nil if another process has it. It calls waits once another process has
// held the lock for longer than a short look.
func takeLock(ctx context.Context, path string, wait bool, waits func() error) (*os.File, error) {
	for try := 0; ; try++ {
		l, err := lockfile.Take(path)
		switch {
		case !errors.Is(err, lockfile.ErrLocked):
			return l, err
		case !wait && try > 0:
			return nil, nil
		case try == 1:
			if err := waits(); err != nil {
				return nil, err
			}
		}
		select {
		case <-time.After(pauseToLock):
		case <-ctx.Done():
			return nil, errEnded
		}
	}
}

// isWatched reports whether a process follows a namespace.
func isWatched(c config.Config, namespace string) bool {
	path := stateName(c, namespace) + ".lock"
	if _, err := os.Stat(path); err != nil {
		return false // looking creates no file
	}
	l, err := lockfile.Take(path)
	if err == nil {
		l.Close()
	}
	return errors.Is(err, lockfile.ErrLocked)
}
