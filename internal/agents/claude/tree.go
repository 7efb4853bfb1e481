package claude

import (
	"crypto/sha256"
	"encoding/binary"
)

// tree has the entries of a file by their parents: where each ends, and below which the model answered a prompt. An
// entry takes about sixty bytes and is visited a few times, in any tree.
type tree struct {
	index  map[[16]byte]int32
	nodes  []node
	chains []string // first entries of conversations of sub-agents without an id
	cut    bool     // the conversation was compacted: no prompt goes back to its beginning
}

// node is an entry, or the parent of an entry that has not come.
type node struct {
	end    int64  // end of its line; for the beginning, the start of the first prompt; -1: it has not come
	said   uint32 // checksum of its content
	parent int32
	chain  int32 // conversation of a sub-agent that it belongs to, from 1
	speech speech
	marks  mark
}

type mark uint8

const (
	reached mark = 1 << iota // it or an entry below it is an answer
	branch                   // a prompt below it was answered, with only entries of the program between them
	side                     // it is of a sub-agent
	named                    // a line has its uuid as id
)

const (
	beginning int32 = 0  // the node that the first entries follow
	nowhere   int32 = -1 // the parent is unknown
)

func newTree() *tree {
	return &tree{index: make(map[[16]byte]int32), nodes: []node{{end: -1, parent: nowhere}}}
}

// indexOf returns the node of an entry, and adds a new one for an unknown uuid.
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

// come adds an entry. It returns the node, whether it is the first of its id, and whether it equals that one.
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

// saidSum returns a checksum of an entry's content, parent and time. A second compaction in one process writes the
// lines before the first one again, completely equal.
func saidSum(e *entry) uint32 {
	message, _ := e.Get("message")
	sum := sha256.Sum256(append([]byte(e.parent+"\x00"+string(e.spelled)+"\x00"+e.kind+"\x00"), message...))
	return binary.BigEndian.Uint32(sum[:])
}

// chainOf returns the conversation of a sub-agent's entry: that of its parent, else a new one.
func (t *tree) chainOf(parent int32, uuid string) int32 {
	if parent > beginning && t.nodes[parent].chain > 0 {
		return t.nodes[parent].chain
	}
	t.chains = append(t.chains, uuid)
	return int32(len(t.chains))
}

// rise marks the ancestors of an answer. Each mark is set once, so a node is visited at most once for each mark.
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

// rewound returns the position before a prompt if the prompt is a rewind: its parent already has an answered branch
// that begins with a prompt. Other children of a parent are parallel calls of tools and reports of hooks.
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

// end returns the end of an entry's line, -1 if it has not come.
func (t *tree) end(uuid string) int64 {
	if i, ok := t.index[keyOf(uuid)]; ok {
		return t.nodes[i].end
	}
	return -1
}

// keyOf returns a key of constant size for an id.
func keyOf(uuid string) [16]byte {
	sum := sha256.Sum256([]byte(uuid))
	return [16]byte(sum[:16])
}
