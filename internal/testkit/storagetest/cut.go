package storagetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Cut is a server of a test that passes what it gets to another one, until it breaks off.
type Cut struct {
	Address string // HOST:PORT

	to      string
	mu      sync.Mutex
	limit   int  // bytes that may still be passed to the server; -1: any
	mute    bool // what the server says is not passed
	broken  bool
	closers []io.Closer
	all     sync.WaitGroup
}

// NewCut passes all connections to an address on to another one.
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

// After has all connections end when n more bytes were passed to the server and there are more.
func (c *Cut) After(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit, c.broken = n, false
}

// Mute has all connections end when the server answers, and the answer is not passed.
func (c *Cut) Mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute, c.broken = true, false
}

// Mend has connections be passed on again, and reports whether they were broken off.
func (c *Cut) Mend() (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.broken
	c.limit, c.mute, c.broken = -1, false, false
	return was
}

// pass passes one connection on.
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

// copy passes bytes on, as many as are allowed.
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

// allowed is how many of n bytes to the server are passed.
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

// answered is how many of n bytes from the server are passed.
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
