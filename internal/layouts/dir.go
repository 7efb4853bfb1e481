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

// Dir is a Storage in a folder of the file system. Nothing it does leaves the folder, and no link
// in it is followed, whatever becomes a link meanwhile. What is neither a file nor a folder is not
// opened.
//
// Files are replaced by an exchange of names where the system and the file system have that: Linux
// and macOS. Elsewhere what is there is given a second name before it is replaced: what is renamed
// over it between the two is lost, and what is written to it in place is not.
type Dir struct {
	// Durable has files survive a power cut: they are synced before they take their place, and Sync
	// does the same for their names. Set it before the Dir is used.
	Durable bool

	name  string // absolute
	real  string // where that led to when it was opened
	top   atomic.Pointer[top]
	lacks struct{ exchange, links bool } // as on some file systems: for tests

	mu   sync.Mutex
	made map[string]bool // folders in which folders were made that are not synced there
	past []*top          // that were opened before
}

var (
	_ Swapper = (*Dir)(nil)
	_ Syncer  = (*Dir)(nil)
	_ Watcher = (*Dir)(nil)
)

// OpenDir opens a folder, and makes it if it is not there.
func OpenDir(name string) (*Dir, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	top, err := openTop(name)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, errors.Join(err, top.Close())
	}
	d := &Dir{name: name, real: real, made: make(map[string]bool)}
	d.top.Store(&top)
	return d, nil
}

// Close releases the folder. Nothing may be under way.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.top.Load().Close()
	for _, top := range d.past {
		err = errors.Join(err, top.Close())
	}
	return err
}

// Moved reports whether the folder is no longer where it was opened: somebody has moved or
// removed it, or a file system came or went there.
func (d *Dir) Moved() bool {
	is, err := os.Stat(d.name)
	was, topErr := d.top.Load().Stat(".")
	return err != nil || topErr != nil || !os.SameFile(is, was)
}

// Reopen opens the folder that is where this one was, and makes it if there is none. What is under
// way ends in the one that was open before; who watches it watches anew. Where a link leads
// elsewhere by now is not gone to, and is ErrNotFile: who named the folder did not name that.
func (d *Dir) Reopen() error {
	if err := os.MkdirAll(d.real, 0o755); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(d.name)
	if err != nil {
		return err
	}
	if real != d.real {
		return fmt.Errorf("formats: %s leads to %s by now, and to %s when it was opened: %w", d.name, real, d.real, ErrNotFile)
	}
	top, err := openTop(d.real)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.past = append(d.past, d.top.Swap(&top))
	clear(d.made)
	return nil
}

// full returns the path of a file for the system, for those who do not mind what is there.
func (d *Dir) full(name string) string { return filepath.Join(d.name, filepath.FromSlash(name)) }

// list describes what is in an open folder, sorted by name.
func (p dirHandle) list() ([]FileInfo, error) {
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	list := make([]FileInfo, 0, len(names))
	for _, name := range names {
		info, err := p.stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // by now
		}
		if err != nil {
			return nil, err
		}
		list = append(list, info.FileInfo)
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

// at opens the folder of a path.
func (d *Dir) at(op, name string, making bool) (p dirHandle, base string, err error) {
	if err := CheckPath(name); err != nil {
		return dirHandle{}, "", err
	}
	dir, base := path.Split(name)
	p, err = d.open(op, strings.TrimSuffix(dir, "/"), making)
	return p, base, err
}

// atPath says of an error where it was.
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
	if err := p.wantFile(base); err != nil { // a pipe would wait, a device may do anything
		return nil, atPath("read", name, err)
	}
	f, _, err := p.openFile(base, os.O_RDONLY, 0)
	if err != nil {
		return nil, atPath("read", name, err)
	}
	return f, nil
}

// wantFile checks that a file is there.
func (p dirHandle) wantFile(base string) error {
	info, err := p.stat(base)
	if err == nil && !info.isFile() {
		err = ErrNotFile
	}
	return err
}

// Write implements Storage: by way of a temporary file in the same folder. It
// streams, so that a file may be larger than memory.
func (d *Dir) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	return d.put(ctx, "write", name, mode, content, func(p dirHandle, temporary, base string) error { return p.rename(temporary, base) })
}

// put writes a temporary file and has take give it its name. What take leaves under the temporary
// name stays there, unless it is still that file.
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
		if is, statErr := p.stat(temporary); statErr == nil && is.number == ours.number { // and nothing that was displaced
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

// writers are kept, as one is more than most files: they were half of all that a first mirror of a
// log left behind.
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

// TemporaryMark is what the name of a temporary file has behind that of the file.
const TemporaryMark = ".tally-tmp-"

// IsTemporary reports whether a file's name is one that a storage uses while it writes, or for
// what it has displaced; a crash may leave such a file behind.
func IsTemporary(name string) bool { return strings.Contains(path.Base(name), TemporaryMark) }

// TemporaryName returns a hidden name in the same folder that IsTemporary recognises and nothing has.
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

// besides returns the path of another name in the same folder; "" if there is none.
func besides(name, base string) string {
	if base == "" {
		return ""
	}
	dir, _ := path.Split(name)
	return dir + base
}

// tries is how often an operation looks again at a place that somebody else changes meanwhile.
const tries = 100

var errBusy = errors.New("somebody changes it again and again")

// trade has a temporary file take its place. What was there has the name that is returned then.
func (d *Dir) trade(p dirHandle, temporary, base string) (displaced string, err error) {
	for range tries {
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

// exchange exchanges the names of a temporary file and of what is in its place: the commit point.
// Before it nothing has happened; after it both files are there, and a crash leaves the displaced
// one under a name that IsTemporary recognises. A file that was there when this was called may be
// gone by now: fs.ErrNotExist.
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
	if err := p.wantFile(temporary); errors.Is(err, ErrNotFile) { // it came there since it was looked at, and goes back
		return "", cmp.Or(p.exchange(temporary, base), err)
	}
	return temporary, nil
}

// replace is exchange where there is no such thing.
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
	if err := p.rename(base, displaced); err != nil { // nor are there links: for a moment nothing has the name
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
	if err := p.wantFile(displaced); errors.Is(err, ErrNotFile) { // it came there since it was looked at
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

// Append implements Storage. A file that has other names keeps its content there: who has them
// did not ask for this.
func (d *Dir) Append(ctx context.Context, name string, content []byte) error {
	p, base, err := d.at("append", name, true)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.wantFile(base); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return atPath("append", name, err)
	}
	f, info, err := p.openFile(base, os.O_CREATE|os.O_APPEND|os.O_WRONLY, modeFile)
	if err != nil {
		return atPath("append", name, err)
	}
	if info.names > 1 {
		return errors.Join(f.Close(), d.extend(ctx, name, info.Mode, content))
	}
	if _, err = f.Write(content); err == nil {
		err = d.sync(f)
	}
	return errors.Join(err, f.Close())
}

// extend replaces a file by one that goes on with content.
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
	info, err := p.stat(base)
	if err != nil {
		return FileInfo{}, atPath("stat", name, err)
	}
	return info.FileInfo, nil
}

// Delete implements Storage. Of a link it removes the link.
func (d *Dir) Delete(_ context.Context, name string) error {
	p, base, err := d.at("delete", name, false)
	if err != nil {
		return err
	}
	defer p.close()
	return atPath("delete", name, p.remove(base))
}

// Sync implements Syncer, if the folder is durable. The folders that were made since the last call are durable then, too. One
// that is gone, or is a link by now, has nothing to sync: no file was written there.
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
			return fmt.Errorf("formats: %w", err)
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

// didMake remembers that a folder was made in another one.
func (d *Dir) didMake(in string) {
	if !d.Durable {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made[in] = true
}

// info is what a file system says of a file.
type info struct {
	FileInfo
	names  uint64    // how many it has; 0: the system does not say
	number [2]uint64 // of the device and on it; zero: the system does not say
}

func (i info) isFile() bool { return !i.Dir && i.Size >= 0 }
