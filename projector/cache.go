package projector

import (
	"container/list"
	"sync"
)

// cacheBytes bounds the decoded chunks in a loader's cache, by their stored size.
const cacheBytes = 8 << 20

// cache keeps recently read parts of snapshots, by hash. The zero value is ready to use. Callers must not change the
// values that it returns.
type cache struct {
	mu     sync.Mutex // guards the fields below
	byHash map[string]*list.Element
	recent list.List // of *cached, newest first
	bytes  int
}

type cached struct {
	hash  string
	value any
	bytes int
}

func (c *cache) get(hash string) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byHash[hash]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cached).value
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byHash, c.bytes = nil, 0
	c.recent.Init()
}

func (c *cache) put(hash string, value any, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byHash[hash] != nil || bytes > cacheBytes/2 {
		return
	}
	if c.byHash == nil {
		c.byHash = make(map[string]*list.Element)
	}
	c.byHash[hash] = c.recent.PushFront(&cached{hash, value, bytes})
	for c.bytes += bytes; c.bytes > cacheBytes; {
		old := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.byHash, old.hash)
		c.bytes -= old.bytes
	}
}
