package projector

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// A timeline is stored as blocks of BlockRecords records and a small rest. Later records never change a block. So the
// bytes written for a growing timeline are proportional to its growth.

// BlockRecords is the number of records of a block.
const BlockRecords = markEvery

// Blocks returns the number of full blocks.
func (t *Timeline) Blocks() int { return t.Len() / BlockRecords }

// Block encodes a full block that is in memory. Blocks are numbered from 0.
func (t *Timeline) Block(n int) []byte {
	return t.appendRecords(nil, n*BlockRecords, (n+1)*BlockRecords)
}

// BlockEnd returns the offset of the last record of a block, and the number of turns in effect right after it, over all
// threads.
func (t *Timeline) BlockEnd(n int) (at events.Offset, turns int, err error) {
	last := (n+1)*BlockRecords - 1
	if at, err = t.offset(last); err != nil {
		return 0, 0, err
	}
	l, err := t.lengthsAt(last)
	return at, l.sum(), err
}

// Rest encodes everything but the full blocks.
func (t *Timeline) Rest() []byte {
	b := binary.AppendUvarint(nil, uint64(len(t.names)))
	for _, name := range t.names {
		b = appendText(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(t.sources)))
	for _, s := range t.sources {
		b = appendInts(appendText(b, s.subject.NATS()), s.end)
	}
	b = binary.AppendUvarint(b, uint64(len(t.points)-1))
	for _, p := range t.points[1:] {
		b = appendInts(b, p.number, p.last())
	}
	b = binary.AppendUvarint(b, uint64(len(t.named.sizes)))
	for _, sum := range sortedKeys(t.named.sizes) {
		b = appendInts(appendText(b, sum), int(t.named.sizes[sum]))
	}
	b = appendInts(b, int(t.named.again))
	b = appendRefNumbers(appendRefNumbers(b, t.stale), t.rewinds)
	return t.appendRecords(b, t.Blocks()*BlockRecords, t.Len())
}

// last returns the last record of the prefix, or -1 if the prefix is empty. A prefix is always the list after some
// earlier record, so its last record identifies it.
func (p point) last() int {
	if p.prefix == nil {
		return -1
	}
	return p.prefix.to
}

// appendRecords encodes the records from a number up to another: their count, their offsets, and their changes to the
// lengths of threads.
func (t *Timeline) appendRecords(b []byte, from, to int) []byte {
	b = binary.AppendUvarint(b, uint64(to-from))
	b = appendOffsets(b, t.offsets[from-t.base:to-t.base])
	deltas := between(t.deltas, from, to-1)
	b = binary.AppendUvarint(b, uint64(len(deltas)))
	for _, d := range deltas {
		b = appendDelta(b, from, d)
	}
	return b
}

// DecodeTimeline decodes the output of Block, for each block in order, and of Rest.
func DecodeTimeline(sub events.Subject, blocks [][]byte, rest []byte) (*Timeline, error) {
	t := NewTimeline(sub)
	d := &decoder{b: rest}
	t.readNames(d)
	points := d.pairs()
	t.readNamed(d)
	stale, rewinds := d.list(), d.list()
	for _, b := range blocks {
		block := &decoder{b: b, err: d.err}
		t.readRecords(block)
		d.err = block.end()
	}
	t.readRecords(d)
	d.end()
	t.readPoints(d, points)
	t.stale, t.rewinds = t.recordRefs(d, stale), t.recordRefs(d, rewinds)
	err := d.err
	if err == nil {
		err = t.remember()
	}
	if err != nil {
		return nil, fmt.Errorf("projector: decode the history of %s: %w", sub.Name(), err)
	}
	return t, nil
}

func (t *Timeline) readNames(d *decoder) {
	for range d.count() {
		t.names = append(t.names, d.text())
	}
	for range d.count() {
		sub, err := events.ParseNATS(d.text())
		if err != nil {
			d.fail("%v", err)
		}
		t.sources = append(t.sources, sourceRange{sub, d.int()})
	}
}

func (t *Timeline) readNamed(d *decoder) {
	for range d.count() {
		sum, size := d.text(), int64(d.int())
		if size <= 0 || t.named.sizes[sum] != 0 {
			d.fail("data %q have the invalid size %d", sum, size)
			return
		}
		t.named.add(sum, size)
	}
	t.named.again = int64(d.int())
}

// readRecords decodes records and appends them to the timeline.
func (t *Timeline) readRecords(d *decoder) {
	p := d.page(t.Len(), len(t.names))
	if len(p.offsets) > 0 && p.offsets[0] <= t.ends.last {
		d.fail("offsets do not ascend")
	}
	for _, at := range p.offsets {
		t.enter(at)
	}
	t.deltas = append(t.deltas, p.deltas...)
}

func (t *Timeline) readPoints(d *decoder, points [][2]int) {
	for _, p := range points {
		number, last := p[0], p[1]
		if d.err != nil || number <= t.points[len(t.points)-1].number || number >= t.Len() || last < -1 || last >= number {
			d.fail("points do not ascend")
			return
		}
		next := point{number: number, open: number + 1}
		if next.prefix, d.err = t.settled(last); next.open < t.Len() {
			next.openAt = t.offsets[next.open]
		}
		t.points = append(t.points, next)
	}
}

// recordRefs returns the records with these numbers. The numbers must ascend.
func (t *Timeline) recordRefs(d *decoder, list []int) []recordRef {
	var recordRefs []recordRef
	for i, n := range list {
		if d.err != nil || n < 0 || n >= t.Len() || i > 0 && n <= list[i-1] {
			d.fail("stale records or rewinds do not ascend")
			return nil
		}
		recordRefs = append(recordRefs, recordRef{n, t.offsets[n]})
	}
	return recordRefs
}

// remember computes values that are not stored: the lengths after the last record, and a mark where later rewinds start
// to count.
func (t *Timeline) remember() (err error) {
	t.lengths, err = t.lengthsAt(t.Len() - 1)
	if last := t.lastLive(t.Len() - 1); last >= 0 {
		t.marks = append(t.marks, mark{last, slices.Clone(t.lengths)})
	}
	return err
}

// Footprint returns the approximate memory use of the timeline, in bytes.
func (t *Timeline) Footprint() int {
	n := 8*cap(t.offsets) + 32*cap(t.deltas) + 64*len(t.points) + 64*len(t.marks)
	if t.older == nil {
		return n
	}
	if l := t.older.last; l != nil {
		n += 8*cap(l.offsets) + 32*cap(l.deltas)
	}
	return n + 80*t.base/BlockRecords
}

func (l threadLengths) sum() int {
	n := 0
	for _, length := range l {
		n += max(length, 0)
	}
	return n
}

func appendRefNumbers(b []byte, list []recordRef) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, p := range list {
		b = appendInts(b, p.number)
	}
	return b
}
