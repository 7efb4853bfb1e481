package storagetest

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/internal/layouts"
)

// Errors as those of a file system.
var (
	errNotEmpty = errors.New("folder not empty")
	errIsFolder = errors.New("is a folder")
)

// Foreign acts on a Mem like programs that do not use Storage: editors, shells, git. Its methods are single system
// calls, and return their errors.
type Foreign struct{ m *Mem }

// Foreign returns the files as other programs see them.
func (m *Mem) Foreign() Foreign { return Foreign{m} }

// Handle is an open file: it stays the same file if it is renamed.
type Handle struct {
	m *Mem
	*node
}

// Open opens a file to write to it in place. With create, a missing file and its folders are created.
func (f Foreign) Open(name string, create bool) (*Handle, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	dir, e, err := f.m.atLocked("open", name, create)
	switch {
	case err != nil:
		return nil, err
	case e.node == nil && create:
		n := f.m.newNode(file, layouts.FileMode(0))
		f.m.linkLocked(dir, name, n)
		return &Handle{f.m, n}, nil
	case e.node == nil:
		return nil, fault("open", name, fs.ErrNotExist)
	case e.kind != file:
		return nil, fault("open", name, errIsFolder)
	}
	return &Handle{f.m, e.node}, nil
}

// change changes the file, and notifies watchers of all of its names.
func (h *Handle) change(do func()) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	do()
	h.m.touchLocked(h.node)
	h.m.tellOfLocked(h.m.top, "", h.node)
}

func (m *Mem) tellOfLocked(dir *node, at string, n *node) {
	for _, e := range dir.entries {
		if e.node == n {
			m.tellLocked(path.Join(at, e.name))
		}
		if e.kind == folder {
			m.tellOfLocked(e.node, path.Join(at, e.name), n)
		}
	}
}

// WriteAt writes at an offset of the file, and extends it if necessary.
func (h *Handle) WriteAt(content string, at int) {
	h.change(func() {
		grown := make([]byte, max(len(h.content), at+len(content)))
		copy(grown, h.content)
		copy(grown[at:], content)
		h.node.content = grown
	})
}

// Truncate shortens the file, or extends it with zeros.
func (h *Handle) Truncate(size int) {
	h.change(func() {
		cut := make([]byte, size)
		copy(cut, h.content)
		h.node.content = cut
	})
}

// Append adds to the file.
func (h *Handle) Append(content string) {
	h.change(func() { h.node.content = append(h.content, content...) })
}

// Content returns the present content of the file.
func (h *Handle) Content() string {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return string(h.content)
}

// Put truncates a file and writes it: cat > name.
func (f Foreign) Put(name, content string) error {
	h, err := f.Open(name, true)
	if err != nil {
		return err
	}
	h.Truncate(0)
	h.WriteAt(content, 0)
	return nil
}

// Append adds to a file: cat >> name.
func (f Foreign) Append(name, content string) error {
	h, err := f.Open(name, true)
	if err != nil {
		return err
	}
	h.Append(content)
	return nil
}

// Replace writes a temporary file and renames it to name, as editors do.
func (f Foreign) Replace(name, content string) error {
	if err := f.Put(name+"~", content); err != nil {
		return err
	}
	return f.Rename(name+"~", name)
}

// Rename moves a file or folder. It replaces an existing file or empty folder.
func (f Foreign) Rename(from, to string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	src, e, err := f.m.atLocked("rename", from, false)
	if err != nil {
		return err
	}
	if e.node == nil {
		return fault("rename", from, fs.ErrNotExist)
	}
	dst, over, err := f.m.atLocked("rename", to, false)
	switch {
	case err != nil:
		return err
	case over.node == e.node: // another spelling of its name
		dst.entries[f.m.key(path.Base(to))] = entry{path.Base(to), e.node}
		f.m.tellLocked(from)
		f.m.tellLocked(to)
		return nil
	case e.kind == folder && f.m.isBelowLocked(e.node, dst):
		return fault("rename", to, fs.ErrInvalid)
	case over.node != nil && (over.kind == folder) != (e.kind == folder):
		return fault("rename", to, errIsFolder)
	case over.node != nil && len(over.entries) > 0:
		return fault("rename", to, errNotEmpty)
	}
	f.m.unlinkLocked(src, from)
	f.m.linkLocked(dst, to, e.node)
	return nil
}

func (m *Mem) isBelowLocked(dir, n *node) bool {
	if dir == n {
		return true
	}
	for _, e := range dir.entries {
		if e.kind == folder && m.isBelowLocked(e.node, n) {
			return true
		}
	}
	return false
}

// Remove removes a file, or a folder with its content; "" removes the content of the storage.
func (f Foreign) Remove(name string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if name == "" {
		for _, key := range f.m.top.keys() {
			f.m.unlinkLocked(f.m.top, f.m.top.entries[key].name)
		}
		return nil
	}
	dir, e, err := f.m.atLocked("remove", name, false)
	if err != nil {
		return err
	}
	if e.node == nil {
		return fault("remove", name, fs.ErrNotExist)
	}
	f.m.unlinkLocked(dir, name)
	return nil
}

func (n *node) keys() []string {
	keys := make([]string, 0, len(n.entries))
	for key := range n.entries {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Mkdir creates a folder and its parents.
func (f Foreign) Mkdir(name string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := layouts.CheckPath(name); err != nil {
		return err
	}
	_, err := f.m.folderLocked("mkdir", name, true)
	return err
}

// Symlink creates an entry that is neither a file nor a folder.
func (f Foreign) Symlink(name string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	dir, e, err := f.m.atLocked("symlink", name, true)
	if err != nil {
		return err
	}
	if e.node != nil {
		return fault("symlink", name, fs.ErrExist)
	}
	f.m.linkLocked(dir, name, f.m.newNode(other, 0o777))
	return nil
}

// Chmod changes the permission bits of a file or folder.
func (f Foreign) Chmod(name string, mode fs.FileMode) error {
	return f.edit("chmod", name, func(n *node) {
		f.m.touchLocked(n)
		n.mode = mode.Perm()
	})
}

// Touch changes only the time of a file or folder.
func (f Foreign) Touch(name string, at time.Time) error {
	return f.edit("touch", name, func(n *node) {
		f.m.touchLocked(n)
		n.time = at
	})
}

// Forge changes the content of a file without changing its time or its version, as when the clock was set back, or
// within one tick of it. If the new content has the same length, the size is also unchanged.
func (f Foreign) Forge(name, content string) error {
	return f.edit("forge", name, func(n *node) { n.content = []byte(content) })
}

func (f Foreign) edit(op, name string, do func(*node)) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	_, e, err := f.m.atLocked(op, name, false)
	if err != nil {
		return err
	}
	if e.node == nil {
		return fault(op, name, fs.ErrNotExist)
	}
	do(e.node)
	f.m.tellLocked(name)
	return nil
}

// Files returns all files by their paths, temporary ones too, with their content.
func (f Foreign) Files() map[string]string {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	files := make(map[string]string)
	f.m.top.walk("", func(name string, n *node) {
		if n.kind == file {
			files[name] = string(n.content)
		}
	})
	return files
}

// Names returns all paths, sorted: folders with a slash at the end, entries that are neither file nor folder with an @.
func (f Foreign) Names() []string {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	var names []string
	f.m.top.walk("", func(name string, n *node) {
		names = append(names, name+[]string{file: "", folder: "/", other: "@"}[n.kind])
	})
	slices.SortFunc(names, strings.Compare)
	return names
}

func (n *node) walk(at string, visit func(name string, n *node)) {
	for _, key := range n.keys() {
		e := n.entries[key]
		name := path.Join(at, e.name)
		visit(name, e.node)
		if e.kind == folder {
			e.walk(name, visit)
		}
	}
}

// Clone returns an independent storage with the same files, as after a crash of the machine.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem(m.o)
	c.made, c.changes, c.named = m.made, m.changes, m.named
	c.top = m.top.clone(make(map[*node]*node))
	return c
}

func (n *node) clone(had map[*node]*node) *node {
	if c := had[n]; c != nil {
		return c
	}
	c := *n
	had[n] = &c
	c.content = slices.Clip(n.content)
	if n.entries != nil {
		c.entries = make(map[string]entry, len(n.entries))
		for key, e := range n.entries {
			c.entries[key] = entry{e.name, e.clone(had)}
		}
	}
	return &c
}
