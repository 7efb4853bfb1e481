//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package layouts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally/internal/disk/durable"
)

// A top is the folder of a Dir. Dir opens paths from it folder by folder and refuses links.
type top struct{ *os.File }

func openTop(name string) (top, error) {
	f, err := os.Open(name)
	return top{f}, err
}

// Stat describes the folder itself, ".".
func (t top) Stat(string) (fs.FileInfo, error) { return t.File.Stat() }

// A dirHandle is an open folder.
type dirHandle struct{ dir *os.File }

func (p dirHandle) close()      { p.dir.Close() }
func (p dirHandle) fd() int     { return int(p.dir.Fd()) }
func (p dirHandle) sync() error { return durable.SyncDir(p.dir) }

func (p dirHandle) names() ([]string, error) { return p.dir.Readdirnames(-1) }

// noFollow has the flags of every open.
const noFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// open opens a folder, "" for the folder of the Dir.
func (d *Dir) open(op, name string, making bool) (dirHandle, error) {
	at, err := openAt(int(d.top.Load().Fd()), ".", unix.O_DIRECTORY, 0, d.name)
	if err != nil || name == "" {
		return dirHandle{at}, atPath(op, name, err)
	}
	through := ""
	for base := range strings.SplitSeq(name, "/") {
		p, in := dirHandle{at}, through
		through = path.Join(through, base)
		at, err = p.folder(base, d.full(through))
		if making && errors.Is(err, fs.ErrNotExist) {
			err = again(func() error { return unix.Mkdirat(p.fd(), base, 0o755) })
			if err == nil {
				d.didMake(in)
			}
			at, err = p.folder(base, d.full(through))
		}
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			err = p.noFolder(base, making)
		}
		p.close()
		if err != nil {
			return dirHandle{}, atPath(op, through, err)
		}
	}
	return dirHandle{at}, nil
}

func (p dirHandle) folder(base, full string) (*os.File, error) {
	return openAt(p.fd(), base, unix.O_DIRECTORY, 0, full)
}

// noFolder returns the error for a base that is not a folder. If base is a file, the path below it does not exist.
func (p dirHandle) noFolder(base string, making bool) error {
	if fi, err := p.stat(base); err == nil && fi.isFile() && !making {
		return fs.ErrNotExist
	}
	return ErrNotFile
}

// again repeats a call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // the system's own error
			return err
		}
	}
}

func openAt(dir int, base string, flags int, mode uint32, full string) (*os.File, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Openat(dir, base, flags|noFollow, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), full), nil
}

// openFile opens base, which must be a regular file.
func (p dirHandle) openFile(base string, flags int, mode fs.FileMode) (*os.File, info, error) {
	f, err := openAt(p.fd(), base, flags, uint32(mode), path.Join(p.dir.Name(), base))
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link; a pipe without a reader, or a socket
		err = ErrNotFile
	}
	if err != nil {
		return nil, info{}, err
	}
	var st unix.Stat_t
	err = again(func() error { return unix.Fstat(int(f.Fd()), &st) }) // Fd makes the file blocking, as usual
	is := infoOf(base, &st)
	if err == nil && !is.isFile() {
		err = ErrNotFile
	}
	if err != nil {
		return nil, info{}, errors.Join(err, f.Close())
	}
	return f, is, nil
}

func (p dirHandle) stat(base string) (info, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstatat(p.fd(), base, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return info{}, err
	}
	return infoOf(base, &st), nil
}

func infoOf(base string, st *unix.Stat_t) info {
	i := info{FileInfo: FileInfo{Name: base, Mode: fs.FileMode(st.Mode) & fs.ModePerm}, names: uint64(st.Nlink), number: [2]uint64{uint64(st.Dev), uint64(st.Ino)}}
	i.ModTime = time.Unix(st.Mtim.Unix())
	i.Version = fmt.Sprintf("%x.%x.%x.%x", st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		i.Size = st.Size
	case unix.S_IFDIR:
		i.Dir = true
	default:
		i.FileInfo = FileInfo{Name: base, Size: -1}
	}
	return i
}

func (p dirHandle) remove(base string) error {
	err := again(func() error { return unix.Unlinkat(p.fd(), base, 0) })
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		if dirErr := again(func() error { return unix.Unlinkat(p.fd(), base, unix.AT_REMOVEDIR) }); !errors.Is(dirErr, unix.ENOTDIR) {
			return dirErr
		}
	}
	return err
}

func (p dirHandle) rename(from, to string) error {
	return again(func() error { return unix.Renameat(p.fd(), from, p.fd(), to) })
}

// link adds a second name to a file. If the name is used, it returns fs.ErrExist; if the file system has no links,
// errors.ErrUnsupported.
func (p dirHandle) link(from, to string) error { return p.linkTo(p, from, to) }

func (p dirHandle) linkTo(other dirHandle, from, to string) error {
	err := again(func() error { return unix.Linkat(p.fd(), from, other.fd(), to, 0) })
	if isUnsupported(err) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EXDEV) {
		return errors.ErrUnsupported
	}
	return err
}

// isUnsupported reports whether the system or the file system lacks a call.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP)
}

// moveNew renames a file to an unused name, in this folder or another one. If the name is used, it returns
// fs.ErrExist.
func (p dirHandle) moveNew(other dirHandle, from, to string) error {
	err := again(func() error { return renameNew(p.fd(), from, other.fd(), to) })
	if !isUnsupported(err) {
		return err
	}
	if err := p.linkTo(other, from, to); !errors.Is(err, errors.ErrUnsupported) {
		if err == nil {
			err = p.remove(from)
		}
		return err
	}
	if _, err := other.stat(to); !errors.Is(err, fs.ErrNotExist) { // a file that appears after this check is replaced
		if err == nil {
			err = fs.ErrExist
		}
		return err
	}
	return again(func() error { return unix.Renameat(p.fd(), from, other.fd(), to) })
}

// exchange exchanges two names. If the file system cannot do that, it returns errors.ErrUnsupported.
func (p dirHandle) exchange(a, b string) error {
	err := again(func() error { return exchange(p.fd(), a, b) })
	if isUnsupported(err) {
		return errors.ErrUnsupported
	}
	return err
}
