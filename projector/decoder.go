package projector

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// decoder reads numbers and texts from a slice. After the first error, all reads return zero.
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

// more reports whether there is more to read.
func (d *decoder) more() bool { return len(d.b) > 0 }

// end returns the first error. Remaining bytes are an error too.
func (d *decoder) end() error {
	if d.more() {
		d.fail("%d bytes follow the end of the data", len(d.b))
	}
	return d.err
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("the data are cut off")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	v, n := binary.Varint(d.b)
	if n <= 0 || int64(int(v)) != v {
		d.fail("the data are cut off")
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

// offset reads an offset, which is stored as its distance from another offset.
func (d *decoder) offset(after events.Offset) events.Offset {
	more := events.Offset(d.uint())
	if more == 0 || more > events.MaxOffset-after {
		d.fail("offsets do not ascend")
		return 0
	}
	return after + more
}

// delta reads a change of a record to a thread. Record numbers lie in first <= n < end; threads is the number of
// threads.
func (d *decoder) delta(first, end, threads int) delta {
	x := delta{first + d.int(), d.int(), d.int() == 1, d.int()}
	if d.err == nil && (x.record < first || x.record >= end || x.thread < 0 && !x.everywhere() || x.thread >= threads) {
		d.fail("invalid change of thread %d by record %d", x.thread, x.record)
	}
	return x
}

// page reads the output of appendRecords. first is the number of the first record; threads is the number of threads
// that the records can change.
func (d *decoder) page(first, threads int) *page {
	p, at := &page{first: first}, events.Offset(0)
	for range d.count() {
		at = d.offset(at)
		p.offsets = append(p.offsets, at)
	}
	for range d.count() {
		p.deltas = append(p.deltas, d.delta(first, p.end(), threads))
	}
	if !slices.IsSortedFunc(p.deltas, func(a, b delta) int { return a.record - b.record }) {
		d.fail("deltas do not ascend")
	}
	return p
}

// count reads the length of a list. Each element of the list takes at least a byte.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("the data are cut off")
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

// list reads a count and so many numbers.
func (d *decoder) list() []int {
	var list []int
	for range d.count() {
		list = append(list, d.int())
	}
	return list
}

func (d *decoder) pairs() [][2]int {
	var list [][2]int
	for range d.count() {
		list = append(list, [2]int{d.int(), d.int()})
	}
	return list
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendInts(b []byte, list ...int) []byte {
	for _, n := range list {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

// appendOffsets encodes ascending offsets as differences.
func appendOffsets(b []byte, list []events.Offset) []byte {
	prev := events.Offset(0)
	for _, at := range list {
		b = binary.AppendUvarint(b, uint64(at-prev))
		prev = at
	}
	return b
}

// appendDelta encodes a delta. Its record is stored relative to from.
func appendDelta(b []byte, from int, d delta) []byte {
	set := 0
	if d.set {
		set = 1
	}
	return appendInts(b, d.record-from, d.thread, set, d.n)
}
