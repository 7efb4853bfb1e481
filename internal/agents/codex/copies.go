package codex

import "github.com/tallylog/tally/internal/rawjson"

// copies recognises lines that a file copied from another thread. They are kept, but their facts belong to the other
// thread.
//
// If the lines have numbers, the file's first line has the number up to which they are copies. That is the file of a
// sub-agent that received its parent's context, which no screen shows. Older forks copy their parent from its
// session_meta on, as their own conversation; their own lines begin with the first turn whose id is not older than
// the thread.
type copies struct {
	upto    int64 // number of the first line that is not a copy; 0: none are
	lineage bool  // there may be copies without numbers
	foreign bool  // the parent's session_meta was read
	old     bool  // the newest turn is older than the thread
	over    bool  // a turn of the file's own was read
	last    int64 // number of the newest line; -1: none
}

// own reads the file's own session_meta.
func (c *copies) own(meta rawjson.Members) {
	c.upto, _ = count(meta, "subagent_history_start_ordinal")
	_, refers := baseOf(meta)
	c.lineage = !refers && c.upto == 0 && parent(meta) != ""
}

// meta reads any session_meta.
func (c *copies) meta(thread string, s *saying) {
	c.foreign = c.foreign || s.payload.Text("id") != thread
}

// turn reads a line with a turn's id.
func (c *copies) turn(thread string, s *saying) {
	id := s.payload.Text("turn_id")
	switch {
	case !isTimed(id) || !isTimed(thread):
	case isOlder(id, thread):
		c.old = true
	default:
		c.over = true
	}
}

// hidden reports whether the newest line is a copy outside of the conversation.
func (c *copies) hidden() bool { return 0 <= c.last && c.last < c.upto }

// now reports whether the newest line is a copy.
func (c *copies) now() bool {
	return c.hidden() || c.lineage && !c.over && (c.foreign || c.old)
}
