package embedded

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
)

// openReadOnly opens a store on a read-only file system, such as a medium or a snapshot. It writes nothing there and
// takes no lock. The server works in a temporary folder, which has links to the blocks that the server only reads and
// copies of the other files. Closing the store removes the folder. Appends are refused.
func openReadOnly(ctx context.Context, o Options, c config.Config, why *ReadOnlyError) (*tally.Store, error) {
	if o.Own || o.Listen != nil {
		return nil, why // serving other processes needs ownership
	}
	dir, err := os.MkdirTemp("", "tally-read-only-")
	if err != nil {
		return nil, err
	}
	if err := shadow(dir, c.Store); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	o.Logger.Warn("the store is on a read-only file system: appends are refused", "dir", c.Store)
	c.Store, o.Trees, o.Daemons, o.Types, o.Views, o.refused, o.shadow = dir, nil, nil, nil, nil, why, true
	st, err := openOwn(ctx, o, c)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return st, nil
}

// shadow fills a folder with the files of a store: links for files that are only read, copies for the others.
func shadow(to, from string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	newest := make(map[string]int) // number of a stream's newest block, by folder
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, from)
		target := filepath.Join(to, name)
		switch {
		case d.IsDir():
			if numbers, err := natsfile.Numbers(path); err == nil && len(numbers) > 0 {
				newest[path] = numbers[len(numbers)-1]
			}
			return os.MkdirAll(target, 0o700)
		case !d.Type().IsRegular(), d.Name() == storedir.LockFile, d.Name() == storedir.OwnerFile, d.Name() == erasure.JournalFile:
			return nil
		case isOnlyRead(path, name, newest):
			return os.Symlink(path, target)
		}
		return copyFile(target, path)
	})
}

// isOnlyRead reports whether a file is never written in place: it is a snapshot, or a block that is not the newest of
// its stream.
func isOnlyRead(path, name string, newest map[string]int) bool {
	if strings.HasPrefix(name, string(filepath.Separator)+"snapshots"+string(filepath.Separator)) {
		return true
	}
	dir := filepath.Dir(path)
	last, has := newest[dir]
	return has && filepath.Ext(path) == filepath.Ext(natsfile.Path(dir, last)) && path != natsfile.Path(dir, last)
}

// copyFile copies a file with its modification time, by which the server judges whether an index is current.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}
