package claude

import (
	"crypto/sha256"
	"encoding/binary"
)

// tree is the entries of a file as they follow each other: where each ends, and below
// which the model answered a prompt. It is some sixty bytes an entry, and each is visited
// a few times, however the entries stand.
type tree struct {
	index  map[[16]byte]int32
	nodes  []node
	chains []string // first entries of conversations of sub-agents that have no id
	cut    bool     // the conversation was compacted: nothing goes back to its beginning
}

// node is an entry, or one that others say they follow and that has not come.
type node struct {
	end    int64  // of its line; of the beginning, where its first prompt starts; -1: it has not come
	said   uint32 // a sum of what it says
	parent int32
	chain  int32 // in which conversation of a sub-agent it stands, from 1
	speech speech
	marks  mark
}

type mark uint8

const (
	reached mark = 1 << iota // it is an answer, or there is one below it
	branch                   // a prompt below it was answered, with nothing between them but what only the program wrote
	side                     // it is of a sub-agent
	named                    // a line has its uuid as id
)

const (
	beginning int32 = 0  // the node that the first entries follow
	nowhere   int32 = -1 // nobody knows what the node follows
)

func newTree() *tree {
	return &tree{index: make(map[[16]byte]int32), nodes: []node{{end: -1, parent: nowhere}}}
}

// place returns the node of an entry, one that has not come if it is new.
func (t *tree) indexOf(uuid string) int32 {
	key := keyOf(uuid)
	i, ok := t.index[key]
	if !ok {
		i = int32(len(t.nodes))
		t.index[key] = i
		t.nodes = append(t.nodes, node{end: -1, parent: nowhere})
	}
	return i
}

// come notes an entry that has come, and returns its node, whether it is the first of its id,
// and whether it says again what that one said.
func (t *tree) come(e *entry, s speech, start, end int64) (i int32, isFirst, isSame bool) {
	i = t.indexOf(e.uuid)
	said := saidSum(e)
	if t.nodes[i].end >= 0 {
		return i, false, t.nodes[i].said == said
	}
	t.nodes[i].said = said
	parent := nowhere
	switch {
	case e.root:
		parent = beginning
	case e.parent != "":
		parent = t.indexOf(e.parent)
	}
	n := &t.nodes[i]
	n.end, n.parent, n.speech = end, parent, s
	if e.side {
		n.marks |= side
		n.chain = t.chainOf(parent, e.uuid)
	} else if b := &t.nodes[beginning]; parent == beginning && s.prompts() && b.end < 0 {
		b.end = start
	}
	if s == answered {
		n.marks |= reached
	}
	if n.marks&reached != 0 {
		t.rise(i)
	}
	return i, true, false
}

// saidSum sums up what an entry says, what it follows and when. A second compaction in one
// process writes the lines before the first one again: those are the same in all of it.
func saidSum(e *entry) uint32 {
	message, _ := e.Get("message")
	sum := sha256.Sum256(append([]byte(e.parent+"\x00"+string(e.spelled)+"\x00"+e.kind+"\x00"), message...))
	return binary.BigEndian.Uint32(sum[:])
}

// chainOf returns the conversation of an entry of a sub-agent: that of the entry it
// follows, else a new one.
func (t *tree) chainOf(parent int32, uuid string) int32 {
	if parent > beginning && t.nodes[parent].chain > 0 {
		return t.nodes[parent].chain
	}
	t.chains = append(t.chains, uuid)
	return int32(len(t.chains))
}

// rise tells those above a node that there is an answer below them. A mark is set once,
// so that nobody is told more often than there are marks.
func (t *tree) rise(i int32) {
	for {
		n := &t.nodes[i]
		prompt := n.speech.prompts() || n.marks&branch != 0 && !n.speech.speaks()
		if n.parent == nowhere || n.parent == beginning && n.marks&side != 0 {
			return
		}
		p := &t.nodes[n.parent]
		tell := reached
		if prompt {
			tell |= branch
		}
		if p.marks&tell == tell {
			return
		}
		p.marks |= tell
		i = n.parent
	}
}

// rewound returns where the conversation stood before a prompt, if it was somewhere else
// when the prompt came: what the prompt follows has an answered branch already. A branch
// begins with a prompt, as one does that somebody chose to go back to: what follows the
// same entry for other reasons are calls of tools side by side, and what hooks report.
func (t *tree) rewound(e *entry) (end int64, ok bool) {
	p := beginning
	switch {
	case e.root && t.cut, !e.root && e.parent == "", e.parent == e.uuid:
		return 0, false
	case !e.root:
		p = t.indexOf(e.parent)
	}
	n := t.nodes[p]
	return n.end, n.marks&branch != 0 && n.end >= 0
}

// has reports whether an entry has come.
func (t *tree) has(uuid string) bool { return t.end(uuid) >= 0 }

// end returns where the line of an entry ends, -1 if it has not come.
func (t *tree) end(uuid string) int64 {
	if i, ok := t.index[keyOf(uuid)]; ok {
		return t.nodes[i].end
	}
	return -1
}

// keyOf is an id in a size that does not grow with it.
func keyOf(uuid string) [16]byte {
	sum := sha256.Sum256([]byte(uuid))
	return [16]byte(sum[:16])
}
