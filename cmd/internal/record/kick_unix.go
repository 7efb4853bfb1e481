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

// socketNames is the pattern of the watches' sockets in the state folder. The names are short, since the path of a
// socket has about a hundred bytes at most.
const socketNames = "kick-*"

// maxKick is the maximum length of a kick: longer paths cannot be opened.
const maxKick = 4096

// kickListener receives the paths of written files from hooks. Any process of this user may send one, so a watch reads
// only files that it follows.
type kickListener struct {
	path    string
	conn    *net.UnixConn
	running sync.WaitGroup
}

// listen calls tell for each kick until Close. It returns nil if no socket can be made; changes are then seen a little
// later.
func listen(tell func(path string)) *kickListener {
	dir := config.StateFolder(os.Getenv)
	sweep(dir)
	path := filepath.Join(dir, "kick-"+strconv.Itoa(os.Getpid()))
	os.Remove(path) // of an earlier process
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil
	}
	_ = os.Chmod(path, 0o600) // the folder is private too
	k := &kickListener{path: path, conn: conn}
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

// sweep removes the sockets of killed processes.
func sweep(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, socketNames)) // the pattern is a constant
	for _, path := range paths {
		if send(path, "") == unix.ECONNREFUSED {
			os.Remove(path)
		}
	}
}

// Close ends listening.
func (k *kickListener) Close() {
	if k == nil {
		return
	}
	os.Remove(k.path)
	k.conn.Close()
	k.running.Wait()
}

// send sends a text to a socket. If there is no reader or its buffer is full, the text is dropped. send never waits.
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
