//go:build unix

package record

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally/internal/config"
)

// socketNames is what the sockets of watches are called, in the state folder. Names are short:
// a path of a socket has some hundred bytes at most.
const socketNames = "kick-*"

// maxKick is how long a kick may be: longer paths cannot be opened.
const maxKick = 4096

// kicks is where hooks say which file was written. What comes may come from any process of
// this user: it names a file, and only files that are followed are looked at.
type kicks struct {
	path    string
	conn    *net.UnixConn
	running sync.WaitGroup
}

// listen has each kick told, until it is closed; nil if there is no place for it, and then
// files are seen a little later.
func listen(tell func(path string)) *kicks {
	dir := config.StateFolder(os.Getenv)
	sweep(dir)
	path := filepath.Join(dir, "kick-"+strconv.Itoa(os.Getpid()))
	os.Remove(path) // of a process of long ago
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil
	}
	_ = os.Chmod(path, 0o600) // the folder is for this user alone, too
	k := &kicks{path: path, conn: conn}
	k.running.Go(func() {
		text := make([]byte, maxKick)
		for {
			n, err := conn.Read(text)
			if err != nil {
				return
			}
			tell(string(text[:n]))
		}
	})
	return k
}

// sweep removes the sockets that killed processes left.
func sweep(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, socketNames)) // the pattern is ours
	for _, path := range paths {
		if send(path, "") == unix.ECONNREFUSED {
			os.Remove(path)
		}
	}
}

// Close ends listening.
func (k *kicks) Close() {
	if k == nil {
		return
	}
	os.Remove(k.path)
	k.conn.Close()
	k.running.Wait()
}

// send says something to a socket, unless nobody is there or it is full. It never waits.
func send(socket, text string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte(text), 0, &unix.SockaddrUnix{Name: socket})
}
