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

// stateName is what files are called that belong to a watch of a namespace, "" where
// nothing is remembered.
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

// stateFile is where a group's progress is kept. What was read with and without redaction
// is not the same, nor of one project and of all, so that none takes the other's word for it.
func stateFile(c config.Config, g *group) string {
	name := stateName(c, g.namespace)
	if !g.redact {
		name += unredacted
	}
	if c.Routing().Only != "" {
		name += ofProject
	}
	return name + ".db"
}

// unredacted is in the name of the state of what is not redacted.
const unredacted = "-clear"

// ofProject is in the name of the state of who takes sessions of a project alone.
const ofProject = "-project"

// lockFiles are the files whose locks a watch has to have, in the order in which every watch
// takes them.
func lockFiles(c config.Config, groups []*group) ([]string, error) {
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

// pauseToLock is how long to wait before a lock is tried again.
const pauseToLock = 200 * time.Millisecond

// takeLock takes a lock; nil if another process has it and it is not to be waited for. It
// calls waits once it is sure that somebody has it for longer than a look.
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

// isWatched reports whether a process follows for a namespace.
func isWatched(c config.Config, namespace string) bool {
	path := stateName(c, namespace) + ".lock"
	if _, err := os.Stat(path); err != nil {
		return false // to look makes nothing
	}
	l, err := lockfile.Take(path)
	if err == nil {
		l.Close()
	}
	return errors.Is(err, lockfile.ErrLocked)
}
