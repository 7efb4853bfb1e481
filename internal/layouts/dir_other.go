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

// A top is the folder of a Dir. That no path leaves it is what os.Root sees to; links are looked
// for before something is opened.
type top struct{ *os.Root }

func openTop(name string) (top, error) {
	root, err := os.OpenRoot(name)
	return top{root}, err
}

// A place is an open folder.
type place struct{ root *os.Root }

func (p place) close() { p.root.Close() }

func (p place) sync() error {
	f, err := p.root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return durable.SyncDir(f)
}

func (p place) names() ([]string, error) {
	f, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// open opens a folder, "" the Dir itself.
func (d *Dir) open(op, name string, making bool) (place, error) {
	root, err := d.top.Load().OpenRoot(".")
	if err != nil || name == "" {
		return place{root}, atPath(op, name, err)
	}
	through := ""
	for base := range strings.SplitSeq(name, "/") {
		p, in := place{root}, through
		through = path.Join(through, base)
		if making {
			if err := p.root.Mkdir(base, 0o755); err == nil {
				d.didMake(in)
			}
		}
		info, err := p.stat(base)
		switch {
		case err == nil && info.isFile() && !making:
			err = fs.ErrNotExist // below a file there is nothing
		case err == nil && !info.Dir:
			err = ErrNotFile
		case err == nil:
			root, err = p.root.OpenRoot(base)
		}
		p.close()
		if err != nil {
			return place{}, atPath(op, through, err)
		}
	}
	return place{root}, nil
}

// openFile opens what must be a file.
func (p place) openFile(base string, flags int, mode fs.FileMode) (*os.File, info, error) {
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

func (p place) stat(base string) (info, error) {
	st, err := p.root.Lstat(base)
	if err != nil {
		return info{}, err
	}
	return infoOf(st), nil
}

func infoOf(st fs.FileInfo) info {
	if !st.Mode().IsRegular() && !st.IsDir() {
		return info{Entry: Entry{Name: st.Name(), Size: -1}}
	}
	e := Entry{Name: st.Name(), Dir: st.IsDir(), Size: st.Size(), Mode: st.Mode().Perm(), ModTime: st.ModTime()}
	e.Version = fmt.Sprintf("%x.%x", st.Size(), st.ModTime().UnixNano())
	if e.Dir {
		e.Size = 0
	}
	return info{Entry: e}
}

func (p place) remove(base string) error { return p.root.Remove(base) }

func (p place) rename(from, to string) error { return p.root.Rename(from, to) }

// link gives a file a second name, where nothing may be. errors.ErrUnsupported: there are none.
func (p place) link(from, to string) error {
	err := p.root.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.ErrUnsupported
}

// moveNew gives a file a name that nothing has, in this folder or another one; else it is
// fs.ErrExist.
func (p place) moveNew(other place, from, to string) error {
	if other.root.Name() == p.root.Name() {
		if err := p.link(from, to); !errors.Is(err, errors.ErrUnsupported) {
			if err == nil {
				err = p.remove(from)
			}
			return err
		}
	}
	if _, err := other.stat(to); !errors.Is(err, fs.ErrNotExist) { // what comes there now is replaced
		if err == nil {
			err = fs.ErrExist
		}
		return err
	}
	if other.root.Name() == p.root.Name() {
		return p.rename(from, to)
	}
	return errors.ErrUnsupported // what is displaced is in the same folder
}

func (p place) exchange(string, string) error { return errors.ErrUnsupported }
