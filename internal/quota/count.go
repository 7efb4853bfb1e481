package quota

import (
	"slices"
	"time"

	"github.com/tallylog/tally/events"
)

// sum is the number of documents in a scope, and their bytes.
type sum struct {
	documents int
	bytes     int64
}

// sums maps scopes to sums. It has no entry for an empty scope.
type sums map[string]sum

// add counts a document the given number of times in each of its scopes.
func (s sums) add(sub events.Subject, h head, times int) {
	if !h.live {
		return
	}
	for _, scope := range scopesOf(h.owner, sub.Kind) {
		s.put(scope, sum{times, int64(times) * h.bytes})
	}
}

func (s sums) addAll(more sums) {
	for scope, n := range more {
		s.put(scope, n)
	}
}

func (s sums) put(scope string, n sum) {
	have := s[scope]
	have.documents, have.bytes = have.documents+n.documents, have.bytes+n.bytes
	if s[scope] = have; have == (sum{}) {
		delete(s, scope)
	}
}

// count is the state of a meter while limits are set.
type count struct {
	made   bool                     // the log was read
	fresh  map[events.Subject]bool  // until made: documents that were written during the read
	heads  map[events.Subject]head  // of live documents
	live   sums                     // totals of heads
	held   sums                     // reserved bytes
	stale  map[events.Subject]*mark // documents to read again
	doubts []*write                 // writes without a known outcome; their bytes stay reserved

	// refs maps a blob to the documents that refer to it. A document whose blob is missing is included: it counts once
	// the blob arrives.
	refs map[events.Subject]map[events.Subject]bool
}

// mark says that a document must be read again. Each mark has its own address.
type mark struct{ _ byte }

func newCount() *count {
	return &count{fresh: make(map[events.Subject]bool), heads: make(map[events.Subject]head), live: make(sums), held: make(sums),
		stale: make(map[events.Subject]*mark), refs: make(map[events.Subject]map[events.Subject]bool)}
}

// set records the head of a document, and the blobs that were looked up for it.
func (c *count) set(sub events.Subject, h head, blobs []events.Subject) {
	old := c.heads[sub]
	c.live.add(sub, old, -1)
	c.live.add(sub, h, 1)
	if c.heads[sub] = h; !h.live {
		delete(c.heads, sub)
	}
	if old.blob != h.blob {
		c.forget(old.blob, sub)
	}
	if h.blob != (events.Subject{}) {
		blobs = append(blobs, h.blob)
	}
	for _, blob := range blobs {
		if c.refs[blob] == nil {
			c.refs[blob] = make(map[events.Subject]bool)
		}
		c.refs[blob][sub] = true
	}
	delete(c.stale, sub)
	if !c.made {
		c.fresh[sub] = true
	}
}

func (c *count) forget(blob, sub events.Subject) {
	if delete(c.refs[blob], sub); len(c.refs[blob]) == 0 {
		delete(c.refs, blob)
	}
}

// touch marks the documents of a write, so that they are read again before the count is used.
func (c *count) touch(w *write) {
	for sub := range w.next {
		c.stale[sub] = new(mark)
	}
	c.touchThose(w.blobs)
	for _, d := range w.behind {
		c.touch(d)
	}
}

// touchThose marks the documents that refer to the given blobs.
func (c *count) touchThose(blobs []events.Subject) {
	for _, blob := range blobs {
		for sub := range c.refs[blob] {
			c.stale[sub] = new(mark)
		}
	}
}

// late handles the outcome of a write that began before this count existed. The documents of the write are marked.
func (c *count) late(w *write, o outcome) {
	switch o {
	case unknown:
		c.doubts = append(c.doubts, &write{next: w.next, blobs: w.blobs, behind: w.behind, since: time.Now()})
	case stored, repeated:
		c.touch(w)
	}
}

// hold reserves the bytes of writes. With times -1 it releases them.
func (c *count) hold(times int, list ...*write) {
	for _, w := range list {
		for scope, n := range w.held {
			c.held.put(scope, sum{bytes: int64(times) * n.bytes})
		}
	}
}

// patience is how long a write without a known outcome may still reach the log. A later write to the same document
// settles the question earlier.
var patience = 30 * time.Second

func (c *count) isExact() bool {
	return c.made && len(c.stale) == 0 && !slices.ContainsFunc(c.doubts, (*write).isDue)
}

func (w *write) isDue() bool { return time.Since(w.since) > patience }

// resolve releases the bytes of writes whose patience is over, and marks their documents.
func (c *count) resolve() {
	c.doubts = slices.DeleteFunc(c.doubts, func(w *write) bool {
		due := w.isDue()
		if due {
			c.hold(-1, w)
			c.touch(w)
		}
		return due
	})
}

// takeOver moves the doubtful writes to the same documents behind a new write. The new write is stored after them, or
// is one of them sent again.
func (c *count) takeOver(w *write) {
	w.behind = nil
	c.doubts = slices.DeleteFunc(c.doubts, func(d *write) bool {
		for sub := range d.next {
			if _, both := w.next[sub]; both {
				w.behind = append(w.behind, d)
				return true
			}
		}
		return false
	})
	c.hold(-1, w.behind...)
}

// reserve computes the bytes to hold for a write: in each scope its own addition, or that of the doubtful writes behind
// it, whichever is larger.
func (w *write) reserve(adds sums) {
	w.held = make(sums)
	for _, d := range w.behind {
		w.held.addAll(d.held)
	}
	for scope, n := range adds {
		if n.bytes > w.held[scope].bytes {
			w.held[scope] = sum{bytes: n.bytes}
		}
	}
}
