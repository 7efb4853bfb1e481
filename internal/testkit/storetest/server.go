package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serverDir makes a copy of a test program run a server with this directory.
const serverDir = "TALLY_TEST_SERVER_DIR"

// serve runs a server, as an operator would, until standard input ends.
func serve(dir string) {
	srv, err := newServer(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(strings.TrimPrefix(srv.ClientURL(), "nats://"))
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// newServer runs a server on loopback.
func newServer(dir string) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, MaxPayload: 16 << 20})
	if err != nil {
		return nil, err
	}
	go srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		return nil, errors.New("the server does not start")
	}
	return srv, nil
}

// A Server is a NATS server in another process that can be killed, with a proxy whose address stays the same. Its
// acknowledged messages survive a kill, but perhaps not a power cut.
type Server struct {
	URL string

	t    testing.TB
	dir  string
	wire net.Listener

	mu   sync.Mutex // guards the fields below
	proc *exec.Cmd
	addr string // the server's address
	hold []byte
	held chan struct{}
}

// StartServer starts a server with an empty directory. It ends with the test. The test's
// program must begin with Main.
func StartServer(t testing.TB) *Server {
	t.Helper()
	wire, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: "nats://" + wire.Addr().String(), t: t, dir: t.TempDir(), wire: wire}
	s.Start()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := wire.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.carry(client) })
		}
	})
	t.Cleanup(func() {
		s.Kill()
		wire.Close()
		running.Wait()
	})
	return s
}

// Start starts the killed server again.
func (s *Server) Start() {
	s.t.Helper()
	p := exec.Command(os.Args[0])
	p.Env, p.Stderr = append(os.Environ(), serverDir+"="+s.dir), os.Stderr
	_, err := p.StdinPipe() // closed when this process ends
	var out io.Reader
	if err == nil {
		out, err = p.StdoutPipe()
	}
	if err == nil {
		err = p.Start()
	}
	var addr string
	if err == nil {
		_, err = fmt.Fscan(out, &addr)
	}
	if err != nil {
		s.t.Errorf("the server does not start: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.addr = p, addr
}

// Kill kills the server and closes the clients' connections.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		_ = s.proc.Process.Kill()
		_ = s.proc.Wait() // it was killed
		s.proc = nil
	}
}

// maxHold bounds the text of Hold, in bytes.
const maxHold = 40

// Hold waits for the next client that sends a text, such as the type of an event. Then it stops passing that client's
// data to the server, which gets only a part of the message, and closes the channel.
func (s *Server) Hold(text string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.held = []byte(text), make(chan struct{})
	return s.held
}

// carry proxies between a client and the server.
func (s *Server) carry(client net.Conn) {
	defer client.Close()
	s.mu.Lock()
	addr := s.addr
	s.mu.Unlock()
	srv, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer srv.Close()
	var both sync.WaitGroup
	both.Go(func() { defer srv.Close(); s.send(srv, client) })
	both.Go(func() { defer client.Close(); io.Copy(client, srv) })
	both.Wait()
}

// send passes a client's data on, until Hold stops it.
func (s *Server) send(srv io.Writer, client io.Reader) {
	buf, last := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := client.Read(buf)
		if last = append(last, buf[:n]...); s.holds(last) {
			io.Copy(io.Discard, client)
			return
		}
		last = bytes.Clone(last[max(0, len(last)-maxHold):]) // the text may span two reads
		if _, failed := srv.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// holds reports, once, whether the data of a client must be stopped.
func (s *Server) holds(sent []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hold) == 0 || !bytes.Contains(sent, s.hold) {
		return false
	}
	s.hold = nil
	close(s.held)
	return true
}
