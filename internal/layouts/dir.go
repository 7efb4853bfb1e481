package layouts

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tallylog/tally/internal/disk/durable"
)

// Dir is a Storage in a folder of the file system. No operation leaves the folder or follows a link in it, even if
// another process creates links at the same time. Dir opens only files and folders.
//
// On Linux and macOS, Dir replaces a file by exchanging two names in one step, if the file system can do that.
// Elsewhere it first adds a second name to the existing file. Content written in place is kept then, but a file that
// another process renames over it between the two steps is lost.
type Dir struct {
	// Durable makes files survive a power cut: Dir syncs a file before it gets its name, and Sync makes the names
	// durable. Set it before the Dir is used.
	Durable bool

	name  string // absolute path
	real  string // name with links resolved, when it was opened
	top   atomic.Pointer[top]
	lacks struct{ exchange, links bool } // features that some file systems lack, for tests

	mu   sync.Mutex
	made map[string]bool // folders in which subfolders were made and not synced
	past []*top          // tops from before Reopen
}

var (
	_ Swapper = (*Dir)(nil)
	_ Syncer  = (*Dir)(nil)
	_ Watcher = (*Dir)(nil)
)

// OpenDir opens a folder, and creates it if it is missing.
func OpenDir(name string) (*Dir, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	folder, err := openTop(name)
	if err != nil {
		return nil, err
	}
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	d := &Dir{name: name, real: resolved, made: make(map[string]bool)}
	d.top.Store(&folder)
	return d, nil
}

// Close releases the folder. The caller ends all operations before.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.top.Load().Close()
	for _, folder := range d.past {
		err = errors.Join(err, folder.Close())
	}
	return err
}

// Moved reports whether the folder is no longer at the path where it was opened: it was moved or removed, or a file
// system was mounted or unmounted there.
func (d *Dir) Moved() bool {
	is, err := os.Stat(d.name)
	was, topErr := d.top.Load().Stat(".")
	return err != nil || topErr != nil || !os.SameFile(is, was)
}

// Reopen opens the folder that is now at the path of this one, and creates it if it is missing. Operations in
// progress end in the old folder; watchers have to watch again. If a link in the path now leads elsewhere, the error
// is ErrNotFile.
func (d *Dir) Reopen() error {
	if err := os.MkdirAll(d.real, 0o755); err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(d.name)
	if err != nil {
		return err
	}
	if resolved != d.real {
		return fmt.Errorf("layouts: %s points to %s now, but pointed to %s when it was opened: %w", d.name, resolved, d.real, ErrNotFile)
	}
	folder, err := openTop(d.real)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.past = append(d.past, d.top.Swap(&folder))
	clear(d.made)
	return nil
}

// full returns the path of a file for the system. The path may contain links.
func (d *Dir) full(name string) string { return filepath.Join(d.name, filepath.FromSlash(name)) }

// list describes the content of an open folder, sorted by name.
func (p dirHandle) list() ([]FileInfo, error) {
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	list := make([]FileInfo, 0, len(names))
	for _, name := range names {
		fi, err := p.stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is removed by now
		}
		if err != nil {
			return nil, err
		}
		list = append(list, fi.FileInfo)
	}
	slices.SortFunc(list, func(a, b FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// List implements Storage.
func (d *Dir) List(_ context.Context, name string) ([]FileInfo, error) {
	if name != "" {
		if err := CheckPath(name); err != nil {
			return nil, err
		}
	}
	p, err := d.open("list", name, false)
	if err != nil {
		return nil, err
	}
	defer p.close()
	list, err := p.list()
	return list, atPath("list", name, err)
}

// at opens the folder of a path and returns it with the last element.
func (d *Dir) at(op, name string, making bool) (p dirHandle, base string, err error) {
	if err := CheckPath(name); err != nil {
		return dirHandle{}, "", err
	}
	dir, base := path.Split(name)
	p, err = d.open(op, strings.TrimSuffix(dir, "/"), making)
	return p, base, err
}

// atPath adds the operation and the path to an error.
func atPath(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Read implements Storage.
func (d *Dir) Read(_ context.Context, name string) (io.ReadCloser, error) {
	p, base, err := d.at("read", name, false)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.wantFile(base); err != nil { // a pipe would block, a device may do anything
		return nil, atPath("read", name, err)
	}
	f, _, err := p.openFile(base, os.O_RDONLY, 0)
	if err != nil {
		return nil, atPath("read", name, err)
	}
	return f, nil
}

// wantFile checks that base is a regular file.
func (p dirHandle) wantFile(base string) error {
	fi, err := p.stat(base)
	if err == nil && !fi.isFile() {
		err = ErrNotFile
	}
	return err
}

// Write implements Storage. It writes a temporary file in the same folder and renames it. It streams, so that a file
// may be larger than memory.
func (d *Dir) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	return d.put(ctx, "write", name, mode, content, func(p dirHandle, temporary, base string) error { return p.rename(temporary, base) })
}

// put writes a temporary file and calls take to rename it. Any other file that take leaves under the temporary name
// stays there.
func (d *Dir) put(ctx context.Context, op, name string, mode fs.FileMode, content func(io.Writer) error, take func(p dirHandle, temporary, base string) error) (err error) {
	p, base, err := d.at(op, name, true)
	if err != nil {
		return err
	}
	defer p.close()
	temporary := TemporaryName(base)
	f, ours, err := p.openFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return atPath(op, name, err)
	}
	defer func() {
		if err == nil {
			return
		}
		if is, statErr := p.stat(temporary); statErr == nil && is.number == ours.number { // take has not left a displaced file there
			err = errors.Join(err, p.remove(temporary))
		}
	}()
	if err := cmp.Or(d.fill(f, mode, content), ctx.Err()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return atPath(op, name, take(p, temporary, base))
}

// writers pools buffers, because one is larger than most files. Without the pool they were half of the garbage of the
// first export of a log.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}

func (d *Dir) fill(f *os.File, mode fs.FileMode, content func(io.Writer) error) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(f)
	defer w.Reset(nil)
	if err := content(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return err
	}
	return d.sync(f)
}

func (d *Dir) sync(f *os.File) error {
	if !d.Durable {
		return nil
	}
	return durable.SyncFile(f)
}

// TemporaryMark separates the file's name from the random end of a temporary name.
const TemporaryMark = ".tally-tmp-"

// IsTemporary reports whether a storage uses such a name for a file that it is writing, or has displaced. A crash may
// leave such files.
func IsTemporary(name string) bool { return strings.Contains(path.Base(name), TemporaryMark) }

// TemporaryName returns a hidden, unused name in the same folder that IsTemporary recognises.
func TemporaryName(name string) string {
	dir, base := path.Split(name)
	return dir + "." + base[:min(len(base), 100)] + TemporaryMark + rand.Text()
}

// Swap implements Swapper.
func (d *Dir) Swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (displaced string, err error) {
	err = d.put(ctx, "swap", name, mode, content, func(p dirHandle, temporary, base string) (err error) {
		displaced, err = d.trade(p, temporary, base)
		return err
	})
	if err != nil {
		return "", err
	}
	return besides(name, displaced), nil
}

// besides returns the path of another name in the same folder, "" for "".
func besides(name, base string) string {
	if base == "" {
		return ""
	}
	dir, _ := path.Split(name)
	return dir + base
}

// maxSwapAttempts limits how often an operation starts again when another process changes the file meanwhile.
const maxSwapAttempts = 100

var errBusy = errors.New("other programs change the file too often")

// trade renames a temporary file to its final name and returns the new name of the file that was there.
func (d *Dir) trade(p dirHandle, temporary, base string) (displaced string, err error) {
	for range maxSwapAttempts {
		if err = p.moveNew(p, temporary, base); !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err = p.wantFile(base); err == nil {
			displaced, err = d.exchange(p, temporary, base)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return displaced, err
		}
	}
	return "", errBusy
}

// exchange exchanges the names of a temporary file and of the existing file: the commit point. A crash before it
// changes nothing. A crash after it leaves both files, the displaced one under a name that IsTemporary recognises. If
// the existing file is gone by now, exchange returns fs.ErrNotExist.
func (d *Dir) exchange(p dirHandle, temporary, base string) (displaced string, err error) {
	err = errors.ErrUnsupported
	if !d.lacks.exchange {
		err = p.exchange(temporary, base)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return d.replace(p, temporary, base)
	}
	if err != nil {
		return "", err
	}
	if err := p.wantFile(temporary); errors.Is(err, ErrNotFile) { // it appeared after the check, and goes back
		return "", cmp.Or(p.exchange(temporary, base), err)
	}
	return temporary, nil
}

// replace is exchange for file systems that cannot exchange names.
func (d *Dir) replace(p dirHandle, temporary, base string) (displaced string, err error) {
	displaced, err = TemporaryName(base), errors.ErrUnsupported
	if !d.lacks.links {
		err = p.link(base, displaced)
	}
	if err == nil {
		if err := p.rename(temporary, base); err != nil {
			return "", errors.Join(err, p.remove(displaced))
		}
		return displaced, nil
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return "", err
	}
	if err := p.rename(base, displaced); err != nil { // without links, the name is unused for a moment
		return "", err
	}
	return displaced, p.moveNew(p, temporary, base)
}

// Displace implements Swapper.
func (d *Dir) Displace(_ context.Context, name string) (displaced string, err error) {
	p, base, err := d.at("displace", name, false)
	if err != nil {
		return "", err
	}
	defer p.close()
	displaced = TemporaryName(base)
	if err = p.wantFile(base); err == nil {
		err = p.rename(base, displaced)
	}
	if err != nil {
		return "", atPath("displace", name, err)
	}
	if err := p.wantFile(displaced); errors.Is(err, ErrNotFile) { // it appeared after the check
		return "", atPath("displace", name, cmp.Or(p.moveNew(p, displaced, base), err))
	}
	return besides(name, displaced), nil
}

// Restore implements Swapper.
func (d *Dir) Restore(_ context.Context, displaced, name string) error {
	if err := CheckPath(name); err != nil {
		return err
	}
	from, had, err := d.at("restore", displaced, false)
	if err != nil {
		return err
	}
	defer from.close()
	if err := from.wantFile(had); err != nil {
		return atPath("restore", displaced, err)
	}
	to, base, err := d.at("restore", name, true)
	if err != nil {
		return err
	}
	defer to.close()
	return atPath("restore", name, from.moveNew(to, had, base))
}

// Append implements Storage. If the file has other names, Append writes a copy under this name, so that the others
// keep their content.
func (d *Dir) Append(ctx context.Context, name string, content []byte) error {
	p, base, err := d.at("append", name, true)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.wantFile(base); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return atPath("append", name, err)
	}
	f, fi, err := p.openFile(base, os.O_CREATE|os.O_APPEND|os.O_WRONLY, modeFile)
	if err != nil {
		return atPath("append", name, err)
	}
	if fi.names > 1 {
		return errors.Join(f.Close(), d.extend(ctx, name, fi.Mode, content))
	}
	if _, err = f.Write(content); err == nil {
		err = d.sync(f)
	}
	return errors.Join(err, f.Close())
}

// extend replaces a file by a copy with content appended.
func (d *Dir) extend(ctx context.Context, name string, mode fs.FileMode, content []byte) error {
	r, err := d.Read(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	return d.Write(ctx, name, mode, func(w io.Writer) error {
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	})
}

// Stat implements Storage.
func (d *Dir) Stat(_ context.Context, name string) (FileInfo, error) {
	p, base, err := d.at("stat", name, false)
	if err != nil {
		return FileInfo{}, err
	}
	defer p.close()
	fi, err := p.stat(base)
	if err != nil {
		return FileInfo{}, atPath("stat", name, err)
	}
	return fi.FileInfo, nil
}

// Delete implements Storage. It removes a link, not its target.
func (d *Dir) Delete(_ context.Context, name string) error {
	p, base, err := d.at("delete", name, false)
	if err != nil {
		return err
	}
	defer p.close()
	return atPath("delete", name, p.remove(base))
}

// Sync implements Syncer, if the folder is durable. It also makes the folders durable that were created since the
// last call. It skips a folder that is gone or is a link now, because no file was written there.
func (d *Dir) Sync(_ context.Context, folders ...string) error {
	if !d.Durable {
		return nil
	}
	d.mu.Lock()
	made := d.made
	d.made = make(map[string]bool)
	d.mu.Unlock()
	all := maps.Clone(made)
	for _, name := range folders {
		all[name] = true
	}
	for name := range all {
		if err := d.syncFolder(name); err != nil {
			d.mu.Lock()
			maps.Copy(d.made, made)
			d.mu.Unlock()
			return fmt.Errorf("layouts: %w", err)
		}
	}
	return nil
}

func (d *Dir) syncFolder(name string) error {
	if name != "" {
		if err := CheckPath(name); err != nil {
			return err
		}
	}
	p, err := d.open("sync", name, false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFile) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	return p.sync()
}

// didMake records that a subfolder was created in a folder.
func (d *Dir) didMake(in string) {
	if !d.Durable {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made[in] = true
}

// info is the file system's description of a file.
type info struct {
	FileInfo
	names  uint64    // number of hard links; 0: unknown
	number [2]uint64 // device and inode; zero: unknown
}

func (i info) isFile() bool { return !i.Dir && i.Size >= 0 }
