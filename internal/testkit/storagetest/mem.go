package storagetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/tallylog/tally/internal/layouts"
)

// MemOptions of a Mem. The zero value works.
type MemOptions struct {
	// Fold treats names that differ only in case or Unicode form as one, as macOS does. A file keeps the name under
	// which it was created.
	Fold bool

	Now func() time.Time // default: a millisecond later at each change
}

// Mem is a Storage in memory that behaves like a file system: an open file stays the same when another file replaces
// it. The same calls have the same results, temporary names included. Only calls change it. It is safe for concurrent
// use.
type Mem struct {
	o MemOptions

	mu       sync.Mutex
	top      *node
	made     int // nodes
	changes  int // of content, of all files
	named    int // temporary names
	watchers map[*memWatcher]bool
	told     *sync.Cond // signals that a watcher reported something
}

var (
	_ layouts.Swapper = (*Mem)(nil)
	_ layouts.Syncer  = (*Mem)(nil)
	_ layouts.Watcher = (*Mem)(nil)
)

// A node is a file, a folder, or another entry.
type node struct {
	number  int
	kind    kind
	content []byte // of a file: readers share it, so it is only appended to or replaced
	mode    fs.FileMode
	time    time.Time
	version string
	entries map[string]entry // of a folder, by folded name
}

type kind int

const (
	file kind = iota
	folder
	other // such as a link
)

type entry struct {
	name string
	*node
}

// NewMem returns an empty storage.
func NewMem(o MemOptions) *Mem {
	m := &Mem{o: o, watchers: make(map[*memWatcher]bool)}
	m.told = sync.NewCond(&m.mu)
	m.top = m.newNode(folder, 0o755)
	return m
}

func (m *Mem) newNode(k kind, mode fs.FileMode) *node {
	m.made++
	n := &node{number: m.made, kind: k, mode: mode.Perm()}
	if k == folder {
		n.entries = make(map[string]entry)
	}
	m.touchLocked(n)
	return n
}

// touchLocked sets a new version of a node.
func (m *Mem) touchLocked(n *node) {
	m.changes++
	n.version = fmt.Sprintf("%d.%d", n.number, m.changes)
	if n.time = time.UnixMilli(1_700_000_000_000 + int64(m.changes)); m.o.Now != nil {
		n.time = m.o.Now()
	}
}

func (m *Mem) key(name string) string {
	if m.o.Fold {
		return strings.ToLower(norm.NFC.String(name))
	}
	return name
}

// Errors of paths are those of package os.
func fault(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// folderLocked returns a folder, "" the storage itself. With making it creates missing folders.
func (m *Mem) folderLocked(op, dir string, making bool) (*node, error) {
	at := m.top
	if dir == "" || dir == "." {
		return at, nil
	}
	through := ""
	for name := range strings.SplitSeq(dir, "/") {
		through = path.Join(through, name)
		e, ok := at.entries[m.key(name)]
		switch {
		case !ok && making:
			e = entry{name, m.newNode(folder, 0o755)}
			at.entries[m.key(name)] = e
			m.tellLocked(through)
		case !ok, e.kind == file && !making:
			return nil, fault(op, dir, fs.ErrNotExist)
		case e.kind != folder:
			return nil, fault(op, through, layouts.ErrNotFile)
		}
		at = e.node
	}
	return at, nil
}

// atLocked returns the folder of a path, and the entry there if it exists.
func (m *Mem) atLocked(op, name string, making bool) (dir *node, e entry, err error) {
	if err := layouts.CheckPath(name); err != nil {
		return nil, entry{}, err
	}
	if dir, err = m.folderLocked(op, path.Dir(name), making); err != nil {
		return nil, entry{}, err
	}
	return dir, dir.entries[m.key(path.Base(name))], nil
}

// fileLocked returns the file at a path.
func (m *Mem) fileLocked(op, name string) (*node, error) {
	_, e, err := m.atLocked(op, name, false)
	switch {
	case err != nil:
		return nil, err
	case e.node == nil:
		return nil, fault(op, name, fs.ErrNotExist)
	case e.kind != file:
		return nil, fault(op, name, layouts.ErrNotFile)
	}
	return e.node, nil
}

func (e entry) describe() layouts.FileInfo {
	d := layouts.FileInfo{Name: e.name, Mode: e.mode, ModTime: e.time, Version: e.version}
	switch e.kind {
	case file:
		d.Size = int64(len(e.content))
	case folder:
		d.Dir = true
	case other:
		d.Size = -1
	}
	return d
}

// List implements Storage.
func (m *Mem) List(_ context.Context, name string) ([]layouts.FileInfo, error) {
	if name != "" {
		if err := layouts.CheckPath(name); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.folderLocked("list", name, false)
	if err != nil {
		return nil, err
	}
	list := make([]layouts.FileInfo, 0, len(dir.entries))
	for _, e := range dir.entries {
		list = append(list, e.describe())
	}
	slices.SortFunc(list, func(a, b layouts.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Read implements Storage. The reader sees the present content, whatever is written later.
func (m *Mem) Read(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.fileLocked("read", name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(n.content)), nil
}

// Stat implements Storage.
func (m *Mem) Stat(_ context.Context, name string) (layouts.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, e, err := m.atLocked("stat", name, false)
	if err != nil {
		return layouts.FileInfo{}, err
	}
	if e.node == nil {
		return layouts.FileInfo{}, fault("stat", name, fs.ErrNotExist)
	}
	return e.describe(), nil
}

// content returns the content to be written. write may take long and call any method.
func (m *Mem) content(ctx context.Context, name string, write func(io.Writer) error) ([]byte, error) {
	if err := layouts.CheckPath(name); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := cmp.Or(write(&b), ctx.Err()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Write implements Storage.
func (m *Mem) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	_, err := m.put(ctx, name, mode, content, false)
	return err
}

// Swap implements layouts.Swapper.
func (m *Mem) Swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (displaced string, err error) {
	return m.put(ctx, name, mode, content, true)
}

func (m *Mem) put(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error, swap bool) (displaced string, err error) {
	data, err := m.content(ctx, name, content)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, e, err := m.atLocked("write", name, true)
	if err != nil {
		return "", err
	}
	if e.node != nil && (e.kind == folder || swap && e.kind != file) {
		return "", fault("write", name, layouts.ErrNotFile)
	}
	if swap && e.node != nil {
		displaced = m.asideLocked(dir, e, name)
	}
	n := m.newNode(file, mode)
	n.content = data
	m.linkLocked(dir, name, n)
	return displaced, nil
}

// asideLocked renames the entry at a path to a temporary name.
func (m *Mem) asideLocked(dir *node, e entry, name string) (displaced string) {
	m.named++
	base := path.Base(name)
	base = fmt.Sprintf(".%s.tally-tmp-%08d", base[:min(len(base), 100)], m.named)
	dir.entries[m.key(base)] = entry{base, e.node}
	return path.Join(path.Dir(name), base)
}

// linkLocked puts a node at a path, under the existing spelling of its name if there is one.
func (m *Mem) linkLocked(dir *node, name string, n *node) {
	base := path.Base(name)
	if e, ok := dir.entries[m.key(base)]; ok {
		base = e.name
	}
	dir.entries[m.key(base)] = entry{base, n}
	m.tellLocked(name)
}

func (m *Mem) unlinkLocked(dir *node, name string) {
	delete(dir.entries, m.key(path.Base(name)))
	m.tellLocked(name)
}

// Displace implements layouts.Swapper.
func (m *Mem) Displace(_ context.Context, name string) (displaced string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.fileLocked("displace", name); err != nil {
		return "", err
	}
	dir, e, err := m.atLocked("displace", name, false)
	if err != nil {
		return "", err
	}
	displaced = m.asideLocked(dir, e, name)
	m.unlinkLocked(dir, name)
	return displaced, nil
}

// Restore implements layouts.Swapper.
func (m *Mem) Restore(_ context.Context, displaced, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.fileLocked("restore", displaced)
	if err != nil {
		return err
	}
	to, e, err := m.atLocked("restore", name, true)
	if err != nil {
		return err
	}
	if e.node != nil {
		return fault("restore", name, fs.ErrExist)
	}
	from, _, err := m.atLocked("restore", displaced, false)
	if err != nil {
		return err
	}
	m.unlinkLocked(from, displaced)
	m.linkLocked(to, name, n)
	return nil
}

// Append implements Storage.
func (m *Mem) Append(_ context.Context, name string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, e, err := m.atLocked("append", name, true)
	switch {
	case err != nil:
		return err
	case e.node == nil:
		n := m.newNode(file, layouts.FileMode(0))
		n.content = slices.Clone(content)
		m.linkLocked(dir, name, n)
		return nil
	case e.kind != file:
		return fault("append", name, layouts.ErrNotFile)
	}
	m.appendLocked(e.node, content)
	m.tellLocked(name)
	return nil
}

// appendLocked appends to a file. Readers keep the old content.
func (m *Mem) appendLocked(n *node, content []byte) {
	n.content = append(n.content, content...)
	m.touchLocked(n)
}

// Delete implements Storage.
func (m *Mem) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, e, err := m.atLocked("delete", name, false)
	switch {
	case err != nil:
		return err
	case e.node == nil:
		return fault("delete", name, fs.ErrNotExist)
	case len(e.entries) > 0:
		return fault("delete", name, errNotEmpty)
	}
	m.unlinkLocked(dir, name)
	return nil
}

// Sync implements layouts.Syncer.
func (m *Mem) Sync(context.Context, ...string) error { return nil }
