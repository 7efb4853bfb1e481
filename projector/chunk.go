package projector

import (
	"fmt"
	"sort"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Snapshots of a session consist of a head and chunks. A chunk holds the content of a fixed range of the session's own
// records, live or not: their offsets, turns and costs, and their changes to the lengths of threads. All of it follows
// from these records alone. So a chunk never changes and is the same for every branch of the session. If a chunk is
// lost, it can be rebuilt from the log.

// sizes determine where chunks end. They belong to the fold's version: other sizes produce other chunks.
type sizes struct {
	records int   // records of a chunk
	bytes   int64 // data of the records, in bytes; a chunk that reaches it ends early
	fan     int   // chunks, or indexes, of an index
}

var standardSizes = sizes{records: 256, bytes: 1 << 20, fan: 16}

// chunkContent is the content of a range of a session's own records.
type chunkContent struct {
	first   int // number of the first record, among the session's own
	offsets []events.Offset
	effects []recordEffect
	turns   map[string]*threadTurns
	costs   []Cost
	bytes   int64 // of the records' data
}

// recordEffect is an effect of a record. The record is numbered from the chunk's first record.
type recordEffect struct {
	record int
	effect
}

// threadTurns holds turns of one thread. Their numbers count all turns that the session's own records ever added to the
// thread.
type threadTurns struct {
	First int    `json:"first"`
	Turns []Turn `json:"turns"`
}

// add folds the next record. next maps each thread to the number of its next turn.
func (c *chunkContent) add(f Fact, next map[string]int) {
	record := len(c.offsets)
	c.offsets = append(c.offsets, f.Offset)
	c.bytes += int64(len(f.Data))
	if f.Invalid != nil {
		return
	}
	effects := effectsOf(f)
	for _, e := range effects {
		c.effects = append(c.effects, recordEffect{record, e})
	}
	switch p := f.Payload.(type) {
	case *events.TurnAppended:
		enter(f.Record, p.Entries, func(name string) *[]Turn { return c.bringing(name, next) })
	case *events.ThreadReplaced:
		for name, r := range p.Threads {
			if items := newItems(f.Record, r); len(items) > 0 {
				turns := c.bringing(name, next)
				*turns = append(*turns, items...)
			}
		}
	case *events.CostAccrued:
		c.costs = append(c.costs, CostOf(f, p))
	}
	for _, e := range effects {
		if b := c.turns[e.thread]; b != nil {
			next[e.thread] = b.First + len(b.Turns)
		}
	}
}

func (c *chunkContent) bringing(name string, next map[string]int) *[]Turn {
	b := c.turns[name]
	if b == nil {
		b = &threadTurns{First: next[name]}
		if c.turns == nil {
			c.turns = make(map[string]*threadTurns)
		}
		c.turns[name] = b
	}
	return &b.Turns
}

// numbered returns, for each thread, the number of the first turn in the chunk and the number of turns.
func (c *chunkContent) numbered() map[string][2]int {
	if len(c.turns) == 0 {
		return nil
	}
	m := make(map[string][2]int, len(c.turns))
	for name, b := range c.turns {
		m[name] = [2]int{b.First, len(b.Turns)}
	}
	return m
}

// firstOf returns the number of the first turn that the record at an offset, or a later record, added to a thread.
func (c *chunkContent) firstOf(name string, at events.Offset) int {
	b := c.turns[name]
	if b == nil {
		return 0
	}
	return b.First + sort.Search(len(b.Turns), func(i int) bool { return b.Turns[i].Offset >= at })
}

func (c *chunkContent) full(s sizes) bool { return len(c.offsets) >= s.records || c.bytes >= s.bytes }

// end returns the number after the last record.
func (c *chunkContent) end() int { return c.first + len(c.offsets) }

// chunkState is the stored form of a chunk. Lists of numbers are stored as varints. Ascending numbers are stored as
// differences.
type chunkState struct {
	First   int                     `json:"first"`
	Bytes   int64                   `json:"bytes,omitempty"`
	Offsets []byte                  `json:"offsets,omitempty"`
	Names   []string                `json:"names,omitempty"` // of the threads in effects, in order of appearance
	Effects []byte                  `json:"effects,omitempty"`
	Turns   map[string]*threadTurns `json:"turns,omitempty"`
	Costs   []Cost                  `json:"costs,omitempty"`
}

func (c *chunkContent) state() chunkState {
	st := chunkState{First: c.first, Bytes: c.bytes, Offsets: appendOffsets(nil, c.offsets), Turns: c.turns, Costs: c.costs}
	numbers := make(map[string]int)
	for _, e := range c.effects {
		thread, known := numbers[e.thread]
		if !known {
			thread = len(st.Names)
			st.Names, numbers[e.thread] = append(st.Names, e.thread), thread
		}
		st.Effects = appendDelta(st.Effects, 0, delta{e.record, thread, e.set, e.n})
	}
	return st
}

func (st chunkState) chunk() (*chunkContent, error) {
	c := &chunkContent{first: st.First, bytes: st.Bytes, turns: st.Turns, costs: st.Costs}
	d := &decoder{b: st.Offsets}
	for at := events.Offset(0); d.more(); {
		at = d.offset(at)
		c.offsets = append(c.offsets, at)
	}
	d.b = st.Effects
	for record := 0; d.more(); {
		x := d.delta(0, len(c.offsets), len(st.Names))
		if x.record < record || x.thread < 0 {
			d.fail("invalid effect of record %d on thread %d", x.record, x.thread)
		}
		if d.err != nil {
			break
		}
		record = x.record
		c.effects = append(c.effects, recordEffect{record, effect{st.Names[x.thread], x.set, x.n}})
	}
	if d.err != nil {
		return nil, d.err
	}
	for name, b := range c.turns {
		if b == nil || b.First < 0 {
			return nil, fmt.Errorf("invalid turns of thread %q", name)
		}
	}
	if c.first < 0 || c.bytes < 0 {
		return nil, fmt.Errorf("invalid first record %d or size %d", c.first, c.bytes)
	}
	return c, nil
}

// encode encodes the chunk. Equal records produce equal bytes.
func (c *chunkContent) encode() ([]byte, error) {
	data, err := rawjson.Marshal(c.state())
	if err != nil {
		return nil, fmt.Errorf("projector: encode a chunk: %v", err)
	}
	return data, nil
}

func decodeChunk(data []byte) (*chunkContent, error) {
	var st chunkState
	if err := rawjson.Unmarshal(data, &st); err != nil {
		return nil, fmt.Errorf("projector: decode a chunk: %v", err)
	}
	c, err := st.chunk()
	if err != nil {
		return nil, fmt.Errorf("projector: decode a chunk: %v", err)
	}
	return c, nil
}
