package natsdial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/log"
)

// ViewsOf returns this machine's directory for the views of a server's log, without asking the server. [ViewsOfLog]
// wrote down which log the server at a URL has. If no store was opened there yet, the directory does not exist.
func ViewsOf(server string) (string, error) {
	dir, at, err := viewsAt(server)
	if err != nil {
		return "", err
	}
	name, err := os.ReadFile(at)
	if err != nil || !isHex(string(name)) {
		return strings.TrimSuffix(at, pointer), nil // never opened
	}
	return filepath.Join(dir, string(name)), nil
}

const pointer = ".log" // ends the name of a file that contains the name of a folder beside it

// viewsAt returns the folder of all views, and the file that names the views of a URL.
func viewsAt(server string) (dir, at string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("embedded: open %s: %w", Redacted(server), err)
	}
	dir = filepath.Join(cache, "tally", "views")
	return dir, filepath.Join(dir, HashName(server)+pointer), nil
}

// HashName returns a short file name for a text.
func HashName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

func isHex(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && name != ""
}

// ViewsOfLog returns this machine's directory for the views of a server's log, and writes down that the log is at this
// URL. The log is identified by the name and the creation time of its first stream. So URLs with another order of hosts
// or another password share a directory. Once a day it removes the directories that are no longer used.
func ViewsOfLog(ctx context.Context, nc *nats.Conn, server string) (string, error) {
	dir, at, err := viewsAt(server)
	if err != nil {
		return "", err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	s, err := js.Stream(ctx, log.FirstStream)
	if err != nil {
		return "", fmt.Errorf("embedded: open %s: %w: %v", Redacted(server), log.ErrUnavailable, err)
	}
	name, now := HashName(log.FirstStream+" "+s.CachedInfo().Created.UTC().Format(time.RFC3339Nano)), time.Now()
	if have, err := os.ReadFile(at); err == nil && string(have) == name {
		if info, err := os.Stat(at); err == nil && now.Sub(info.ModTime()) > 24*time.Hour && os.Chtimes(at, time.Time{}, now) == nil {
			removeUnused(dir, now)
		}
		return filepath.Join(dir, name), nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("embedded: open %s: %w", Redacted(server), err)
	}
	if err := durable.Replace(at, []byte(name), 0o600, durable.NoSync); err != nil {
		return "", err
	}
	removeUnused(dir, now)
	return filepath.Join(dir, name), nil
}

// unusedFor is how long a folder of views stays without being used.
const unusedFor = 30 * 24 * time.Hour

// removeUnused removes the folders of views that nobody has used for a while, as of a stream that was deleted. To open
// the log of a folder, to write a file in it and to hold a lock in it is to use it. A folder that has folders in it has
// more than views, such as the state of trees, and stays. What cannot be removed stays too: it is a cache.
func removeUnused(dir string, now time.Time) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	pointers := make(map[string][]string) // paths, by the name of the folder
	opened := make(map[string]bool)
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if filepath.Ext(path) != pointer {
			continue
		}
		name, err := os.ReadFile(path)
		if err != nil {
			return
		}
		pointers[string(name)] = append(pointers[string(name)], path)
		opened[string(name)] = opened[string(name)] || wasUsed(e, now)
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if !isHex(e.Name()) || opened[e.Name()] || wasUsed(e, now) || !isUnused(path, now) || os.RemoveAll(path) != nil {
			continue
		}
		for _, p := range pointers[e.Name()] {
			os.Remove(p)
		}
	}
}

// wasUsed reports whether a file or folder was written lately. One that cannot be looked at counts as written.
func wasUsed(e fs.DirEntry, now time.Time) bool {
	info, err := e.Info()
	return err != nil || now.Sub(info.ModTime()) < unusedFor
}

// isUnused reports whether a folder has nothing but files, all of them old, and no process holds a lock in it.
func isUnused(dir string, now time.Time) bool {
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range list {
		if e.IsDir() || wasUsed(e, now) {
			return false
		}
		if filepath.Ext(e.Name()) != ".lock" {
			continue
		}
		f, err := lockfile.Take(filepath.Join(dir, e.Name()))
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}
