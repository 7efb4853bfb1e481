package testkit

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// RedisServer is a Redis server for one test.
type RedisServer struct {
	URL     string
	command func() *exec.Cmd
	running *exec.Cmd
}

// Redis starts a Redis server with settings, such as "--appendonly", "yes", that ends with the test. Its files stay in
// a folder until then. It skips the test on a machine without Redis.
func Redis(t testing.TB, settings ...string) *RedisServer {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	Needs(t, err == nil, "redis-server")
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	l.Close()
	s := &RedisServer{URL: fmt.Sprintf("redis://%s/0", address)}
	s.command = func() *exec.Cmd {
		return exec.Command(program, append([]string{"--bind", "127.0.0.1", "--port", fmt.Sprint(address.Port), "--dir", dir, "--save", ""}, settings...)...)
	}
	s.Start(t)
	t.Cleanup(func() { s.Kill(t) })
	return s
}

// Start starts the server again after a Kill.
func (s *RedisServer) Start(t testing.TB) {
	t.Helper()
	cmd := s.command()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); fmt.Fprintln(&said, lines.Text()) {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			s.running = cmd
			go func() { // otherwise it would block on a full pipe
				for lines.Scan() {
				}
			}()
			return
		}
	}
	t.Fatalf("redis-server: %v\n%s", cmd.Wait(), said.String())
}

// Kill kills the server, like a crash.
func (s *RedisServer) Kill(t testing.TB) {
	t.Helper()
	if s.running == nil {
		return
	}
	if err := s.running.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = s.running.Wait() // killed
	s.running = nil
}
