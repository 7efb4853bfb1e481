package projector

import (
	"container/list"
	"sync"
)

// cacheBytes bounds what a loader keeps of decoded chunks, by their stored size.
const cacheBytes = 8 << 20

// cache keeps what was read of snapshots last, by hash. The zero value is ready to
// use. What it returns is not altered by anybody.
type cache struct {
	mu     sync.Mutex // guards what follows
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
