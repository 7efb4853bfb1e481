//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package layouts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/tallylog/tally/internal/disk/durable"
)

// A top is the folder of a Dir. os.Root ensures that no path leaves it. Dir checks for links before it opens a file.
type top struct{ *os.Root }

func openTop(name string) (top, error) {
	root, err := os.OpenRoot(name)
	return top{root}, err
}

// A dirHandle is an open folder.
type dirHandle struct{ root *os.Root }

func (p dirHandle) close() { p.root.Close() }

func (p dirHandle) sync() error {
	f, err := p.root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return durable.SyncDir(f)
}

func (p dirHandle) names() ([]string, error) {
	f, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// open opens a folder, "" for the folder of the Dir.
func (d *Dir) open(op, name string, making bool) (dirHandle, error) {
	root, err := d.top.Load().OpenRoot(".")
	if err != nil || name == "" {
		return dirHandle{root}, atPath(op, name, err)
	}
	through := ""
	for base := range strings.SplitSeq(name, "/") {
		p, in := dirHandle{root}, through
		through = path.Join(through, base)
		if making {
			if err := p.root.Mkdir(base, 0o755); err == nil {
				d.didMake(in)
			}
		}
		info, err := p.stat(base)
		switch {
		case err == nil && info.isFile() && !making:
			err = fs.ErrNotExist // a path below a file does not exist
		case err == nil && !info.Dir:
			err = ErrNotFile
		case err == nil:
			root, err = p.root.OpenRoot(base)
		}
		p.close()
		if err != nil {
			return dirHandle{}, atPath(op, through, err)
		}
	}
	return dirHandle{root}, nil
}

// openFile opens base, which must be a regular file.
func (p dirHandle) openFile(base string, flags int, mode fs.FileMode) (*os.File, info, error) {
	f, err := p.root.OpenFile(base, flags, mode)
	if err != nil {
		return nil, info{}, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = ErrNotFile
	}
	if err != nil {
		return nil, info{}, errors.Join(err, f.Close())
	}
	return f, infoOf(st), nil
}

func (p dirHandle) stat(base string) (info, error) {
	st, err := p.root.Lstat(base)
	if err != nil {
		return info{}, err
	}
	return infoOf(st), nil
}

func infoOf(st fs.FileInfo) info {
	if !st.Mode().IsRegular() && !st.IsDir() {
		return info{FileInfo: FileInfo{Name: st.Name(), Size: -1}}
	}
	e := FileInfo{Name: st.Name(), Dir: st.IsDir(), Size: st.Size(), Mode: st.Mode().Perm(), ModTime: st.ModTime()}
	e.Version = fmt.Sprintf("%x.%x", st.Size(), st.ModTime().UnixNano())
	if e.Dir {
		e.Size = 0
	}
	return info{FileInfo: e}
}

func (p dirHandle) remove(base string) error { return p.root.Remove(base) }

func (p dirHandle) rename(from, to string) error { return p.root.Rename(from, to) }

// link adds a second name to a file. If the name is used, it returns fs.ErrExist; if the file system has no links,
// errors.ErrUnsupported.
func (p dirHandle) link(from, to string) error {
	err := p.root.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.ErrUnsupported
}

// moveNew renames a file to an unused name, in this folder or another one. If the name is used, it returns
// fs.ErrExist.
func (p dirHandle) moveNew(other dirHandle, from, to string) error {
	if other.root.Name() == p.root.Name() {
		if err := p.link(from, to); !errors.Is(err, errors.ErrUnsupported) {
			if err == nil {
				err = p.remove(from)
			}
			return err
		}
	}
	if _, err := other.stat(to); !errors.Is(err, fs.ErrNotExist) { // a file that appears after this check is replaced
		if err == nil {
			err = fs.ErrExist
		}
		return err
	}
	if other.root.Name() == p.root.Name() {
		return p.rename(from, to)
	}
	return errors.ErrUnsupported // a displaced file is in the same folder
}

func (p dirHandle) exchange(string, string) error { return errors.ErrUnsupported }
