package quota

import (
	"slices"
	"time"

	"github.com/tallylog/tally/events"
)

// sum is of one scope.
type sum struct {
	documents int
	bytes     int64
}

// sums are by scope. A scope with nothing is not there.
type sums map[string]sum

// add counts a document in its scopes, so many times.
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

// count is what a log has, while there are limits.
type count struct {
	made   bool                     // from the log
	fresh  map[events.Subject]bool  // until then: what was written to meanwhile
	heads  map[events.Subject]head  // that are live
	live   sums                     // of heads
	held   sums                     // what is reserved
	stale  map[events.Subject]*mark // documents that are to be read anew
	doubts []*write                 // that may be in the log or not; what they add is reserved

	// refs are the documents that refer to a blob. One that cannot be read without it is among
	// them: it is counted when the blob comes.
	refs map[events.Subject]map[events.Subject]bool
}

// mark is that a document is to be read anew: another one each time.
type mark struct{ _ byte }

func newCount() *count {
	return &count{fresh: make(map[events.Subject]bool), heads: make(map[events.Subject]head), live: make(sums), held: make(sums),
		stale: make(map[events.Subject]*mark), refs: make(map[events.Subject]map[events.Subject]bool)}
}

// set notes what a document is, and which other blobs were looked for.
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

// touch has the documents of a write read anew before anybody relies on the count.
func (c *count) touch(w *write) {
	for sub := range w.next {
		c.stale[sub] = new(mark)
	}
	c.touchThose(w.blobs)
	for _, d := range w.behind {
		c.touch(d)
	}
}

// touchThose has documents read anew that refer to blobs.
func (c *count) touchThose(blobs []events.Subject) {
	for _, blob := range blobs {
		for sub := range c.refs[blob] {
			c.stale[sub] = new(mark)
		}
	}
}

// late is told of a write that began before this count: its documents are read anew.
func (c *count) late(w *write, o outcome) {
	switch o {
	case unknown:
		c.doubts = append(c.doubts, &write{next: w.next, blobs: w.blobs, behind: w.behind, since: time.Now()})
	case stored, repeated:
		c.touch(w)
	}
}

// hold reserves what writes add, or gives it back with -1.
func (c *count) hold(times int, list ...*write) {
	for _, w := range list {
		for scope, n := range w.held {
			c.held.put(scope, sum{bytes: int64(times) * n.bytes})
		}
	}
}

// patience is how long what may still be on its way to the log is waited for, if nothing
// that was stored behind it says what became of it.
var patience = 30 * time.Second

func (c *count) isExact() bool {
	return c.made && len(c.stale) == 0 && !slices.ContainsFunc(c.doubts, (*write).isDue)
}

func (w *write) isDue() bool { return time.Since(w.since) > patience }

// resolve has the documents of doubtful writes read anew, once that tells what became of
// them.
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

// takeOver gives a write the place of the doubtful ones to its documents: it is stored
// behind them, or is one of them, sent again.
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

// reserve notes what is held for a write: for each scope what it adds, or the doubtful ones
// whose place it has.
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
