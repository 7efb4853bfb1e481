package storagetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Cut is a proxy to a server that can break its connections.
type Cut struct {
	Address string // HOST:PORT

	to      string
	mu      sync.Mutex
	limit   int  // bytes that may still go to the server; -1: any number
	mute    bool // the server's answers are dropped
	broken  bool
	closers []io.Closer
	all     sync.WaitGroup
}

// NewCut starts a proxy to an address.
func NewCut(t testing.TB, to string) *Cut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cut{Address: l.Addr().String(), to: to, limit: -1}
	c.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.pass(conn)
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.breakOff()
		c.all.Wait()
	})
	return c
}

// After ends all connections when n more bytes have gone to the server and another one comes.
func (c *Cut) After(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit, c.broken = n, false
}

// Mute ends all connections when the server answers, and drops the answer.
func (c *Cut) Mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute, c.broken = true, false
}

// Mend lets connections pass again, and reports whether they were broken.
func (c *Cut) Mend() (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.broken
	c.limit, c.mute, c.broken = -1, false, false
	return was
}

// pass proxies one connection.
func (c *Cut) pass(here net.Conn) {
	there, err := net.Dial("tcp", c.to)
	if err != nil {
		here.Close()
		return
	}
	c.mu.Lock()
	c.closers = append(c.closers, here, there)
	c.mu.Unlock()
	c.all.Go(func() {
		c.copy(there, here, c.allowed)
		there.Close()
	})
	c.all.Go(func() {
		c.copy(here, there, c.answered)
		here.Close()
	})
}

// copy copies as many bytes as are allowed.
func (c *Cut) copy(to io.Writer, from io.Reader, allowed func(n int) int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		pass := allowed(n)
		if _, writeErr := to.Write(buf[:pass]); err != nil || writeErr != nil {
			return
		}
		if pass < n {
			c.breakOff()
			return
		}
	}
}

// allowed returns how many of n bytes may go to the server.
func (c *Cut) allowed(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit < 0 {
		return n
	}
	pass := min(n, c.limit)
	c.limit -= pass
	return pass
}

// answered returns how many of n bytes of the server may pass.
func (c *Cut) answered(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute {
		return 0
	}
	return n
}

func (c *Cut) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	for _, closer := range c.closers {
		closer.Close()
	}
	c.closers = nil
}
