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

// Foreign is what programs that know nothing of a Storage do to a Mem: editors, shells, git. Its
// methods are single calls of a system, and return errors as these do.
type Foreign struct{ m *Mem }

// Foreign returns the files as other programs see them.
func (m *Mem) Foreign() Foreign { return Foreign{m} }

// Handle is a file that a program has open: the file, whatever its name is by now.
type Handle struct {
	m *Mem
	*node
}

// Open opens a file to write to it in place. With create it and the folders above it are made if
// they are not there.
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

// change does something to the file, and says under which names it has changed.
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

// WriteAt writes at a place of the file, and makes it longer if need be.
func (h *Handle) WriteAt(content string, at int) {
	h.change(func() {
		grown := make([]byte, max(len(h.content), at+len(content)))
		copy(grown, h.content)
		copy(grown[at:], content)
		h.node.content = grown
	})
}

// Truncate cuts the file off, or adds zeros.
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

// Content is what the file has now.
func (h *Handle) Content() string {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return string(h.content)
}

// Put is open with truncation, one write: cat > name.
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

// Replace writes another file beside one and renames it over that, as editors do.
func (f Foreign) Replace(name, content string) error {
	if err := f.Put(name+"~", content); err != nil {
		return err
	}
	return f.Rename(name+"~", name)
}

// Rename moves a file or folder. A file, or an empty folder, that is there is replaced.
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

// Remove removes a file, or a folder with all that is in it; "" what is in the storage.
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

// Mkdir makes a folder, and those above it.
func (f Foreign) Mkdir(name string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := layouts.CheckPath(name); err != nil {
		return err
	}
	_, err := f.m.folderLocked("mkdir", name, true)
	return err
}

// Symlink puts what is neither a file nor a folder in a place where nothing is.
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

// Touch changes the time of a file or folder, and nothing else.
func (f Foreign) Touch(name string, at time.Time) error {
	return f.edit("touch", name, func(n *node) {
		f.m.touchLocked(n)
		n.time = at
	})
}

// Forge changes the content of a file, and neither its time nor its version: a clock that was put
// back, or a change within one tick of it. Content of the same length keeps the size too.
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

// Files are all files by their paths, temporary ones too, with their content.
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

// Names are the paths of all that is there, sorted: of folders with a slash at the end, of what is
// neither file nor folder with an @.
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

// Clone is a storage with the same files, of which nobody knows: what a machine has after a crash.
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
