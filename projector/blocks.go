package projector

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// A history is written in blocks of BlockRecords records, which nothing that comes
// later changes, and a rest, which is small. So what is written of a history that
// grows is in proportion to what it has grown by.

// BlockRecords is the number of records of a block.
const BlockRecords = markEvery

// Blocks is the number of blocks that are full.
func (h *History) Blocks() int { return h.Len() / BlockRecords }

// Block encodes a full block that is in memory, by number from 0.
func (h *History) Block(n int) []byte {
	return h.appendRecords(nil, n*BlockRecords, (n+1)*BlockRecords)
}

// BlockEnd returns the offset of the last record of a block, and how many turns were
// in effect right after it, over all threads.
func (h *History) BlockEnd(n int) (at events.Offset, turns int) {
	last := (n+1)*BlockRecords - 1
	return h.offset(last), h.lengthsAt(last).sum()
}

// Rest encodes everything but the full blocks.
func (h *History) Rest() []byte {
	b := binary.AppendUvarint(nil, uint64(len(h.names)))
	for _, name := range h.names {
		b = appendText(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(h.sources)))
	for _, s := range h.sources {
		b = appendInts(appendText(b, s.subject.NATS()), s.end)
	}
	b = binary.AppendUvarint(b, uint64(len(h.points)-1))
	for _, p := range h.points[1:] {
		b = appendInts(b, p.number, p.last())
	}
	b = appendPlaces(appendPlaces(b, h.late), h.rewinds)
	return h.appendRecords(b, h.Blocks()*BlockRecords, h.Len())
}

// last is the last record of the prefix, -1 if that is empty. A prefix is always
// the list after some earlier record: its last one says which.
func (p point) last() int {
	if p.prefix == nil {
		return -1
	}
	return p.prefix.to
}

// appendRecords encodes the records from one number up to another: how many, their
// offsets, and what they did to the lengths of threads.
func (h *History) appendRecords(b []byte, from, to int) []byte {
	b = binary.AppendUvarint(b, uint64(to-from))
	prev := events.Offset(0)
	for _, at := range h.offsets[from-h.base : to-h.base] {
		b = binary.AppendUvarint(b, uint64(at-prev))
		prev = at
	}
	deltas := between(h.deltas, from, to-1)
	b = binary.AppendUvarint(b, uint64(len(deltas)))
	for _, d := range deltas {
		set := 0
		if d.set {
			set = 1
		}
		b = appendInts(b, d.record-from, d.thread, set, d.n)
	}
	return b
}

// DecodeHistory reads what Block, for each block in order, and Rest wrote.
func DecodeHistory(sub events.Subject, blocks [][]byte, rest []byte) (*History, error) {
	h := NewHistory(sub)
	d := &decoder{}
	for _, b := range blocks {
		d.b = b
		h.readRecords(d)
	}
	d.b = rest
	h.readRest(d)
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	if d.err != nil {
		return nil, fmt.Errorf("projector: decode the history of %s: %w", sub, d.err)
	}
	h.remember()
	return h, nil
}

// readRest reads what Rest wrote. The names come before the deltas of the last
// records, which are counted with them; those of the blocks are checked here.
func (h *History) readRest(d *decoder) {
	for range d.count() {
		h.names = append(h.names, d.text())
	}
	for range d.count() {
		sub, err := events.ParseNATS(d.text())
		if err != nil {
			d.fail("%v", err)
		}
		h.sources = append(h.sources, source{sub, d.int()})
	}
	type prefix struct{ number, last int }
	var points []prefix
	for range d.count() {
		points = append(points, prefix{d.int(), d.int()})
	}
	late, rewinds := d.ascending(), d.ascending()
	h.readRecords(d)
	if d.err != nil {
		return
	}
	for _, p := range points {
		if p.number <= h.points[len(h.points)-1].number || p.number >= len(h.offsets) || p.last < -1 || p.last >= p.number {
			d.fail("points do not ascend")
			return
		}
		next := point{number: p.number, prefix: h.settled(p.last), open: p.number + 1}
		if next.open < h.Len() {
			next.openAt = h.offset(next.open)
		}
		h.points = append(h.points, next)
	}
	if !numbers(late, len(h.offsets)) || !numbers(rewinds, len(h.offsets)) {
		d.fail("late records or rewinds do not ascend")
		return
	}
	for _, n := range late {
		h.late = append(h.late, place{n, h.offset(n)})
	}
	for _, n := range rewinds {
		h.rewinds = append(h.rewinds, place{n, h.offset(n)})
	}
	h.ends.own = 0
	if own := h.inherited(); own < h.Len() {
		h.ends.own = h.offset(own)
	}
	for _, delta := range h.deltas {
		if delta.thread < 0 && !delta.everywhere() || delta.thread >= len(h.names) {
			d.fail("a delta of thread %d", delta.thread)
			return
		}
	}
}

func (h *History) readRecords(d *decoder) {
	first, at := len(h.offsets), events.Offset(0)
	for range d.count() {
		at += events.Offset(d.uint())
		if at > events.MaxOffset || len(h.offsets) > 0 && at <= h.lastOffset() {
			d.fail("offsets do not ascend")
			return
		}
		h.enter(at)
	}
	for range d.count() {
		x := delta{first + d.int(), d.int(), d.int() == 1, d.int()}
		if x.record < first || x.record >= len(h.offsets) || len(h.deltas) > 0 && x.record < h.deltas[len(h.deltas)-1].record {
			d.fail("a delta of record %d", x.record)
			return
		}
		h.deltas = append(h.deltas, x)
	}
}

// remember counts what is not stored: the lengths after the last record, and a
// mark from which later rewinds count.
func (h *History) remember() {
	h.lengths = h.lengthsAt(h.Len() - 1)
	if last := h.lastLive(h.Len() - 1); last >= 0 {
		h.marks = append(h.marks, mark{last, slices.Clone(h.lengths)})
	}
}

// Footprint is about how many bytes of memory the history takes.
func (h *History) Footprint() int {
	n := 8*cap(h.offsets) + 32*cap(h.deltas) + 64*len(h.points) + 64*len(h.marks)
	if s, ok := h.elder.(*shelf); ok {
		n += s.footprint()
	}
	return n
}

func (l lengths) sum() int {
	n := 0
	for _, length := range l {
		n += max(length, 0)
	}
	return n
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPlaces(b []byte, list []place) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, p := range list {
		b = appendInts(b, p.number)
	}
	return b
}

// decoder reads numbers and texts off a slice. After the first error everything
// reads as zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("it is cut off")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	var v [1]int
	rest, err := readInts(d.b, v[:])
	if err != nil {
		d.fail("%v", err)
		return 0
	}
	d.b = rest
	return v[0]
}

// count reads the length of a list, each element of which takes a byte or more.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("it is cut off")
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.count()
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) ascending() []int {
	var list []int
	for range d.count() {
		list = append(list, d.int())
	}
	return list
}
