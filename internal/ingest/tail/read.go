package tail

import (
	"bytes"
	"errors"
	"slices"
)

const (
	firstChunk = 64 << 10
	longTail   = 1 << 20 // content without a line feed of this length is not searched again
)

// readFile reads the next lines of a file, or returns nil.
func (t *Tailer) readFile(f *file) *Batch {
	c, err := t.contentOf(f)
	if err != nil || c == nil {
		t.cannotRead(f, err)
		return nil
	}
	b, err := t.readContent(f, c)
	if !f.packed || f.mark.Offset >= f.end || f.read == f.now || err != nil {
		t.endContent(f, c)
	}
	if err != nil {
		t.cannotRead(f, err)
		return nil
	}
	return b
}

// contentOf opens the content of a file and updates its metadata. Only one compressed file is open at a time, until it
// was read to its end. If f must wait for that, contentOf returns nil.
func (t *Tailer) contentOf(f *file) (c *fileContent, err error) {
	if t.packedFile != nil && f.packed {
		if t.packedFile != f {
			t.waiting = append(t.waiting, f)
			return nil, nil
		}
		if t.packed.meta == f.now {
			return t.packed, nil
		}
		t.closePacked()
	}
	c, err = t.openContent(f.fileKey, f.packed)
	if err != nil {
		return nil, err
	}
	if f.packed {
		t.packedFile, t.packed = f, c
	}
	if c.meta != f.now {
		t.unindexNode(f)
		f.compare = f.compare || c.meta.node != f.now.node || c.meta.size <= f.now.size
		f.now, f.changed, f.settled = c.meta, t.o.Now(), false
		t.indexNode(f)
	}
	f.compare = f.compare || c.born != f.born && f.born != 0
	f.end, f.born = c.size, c.born
	return c, nil
}

func (t *Tailer) endContent(f *file, c *fileContent) {
	if t.packedFile == f {
		t.closePacked()
		return
	}
	c.close()
}

// closePacked closes the open compressed file, and releases the waiting ones.
func (t *Tailer) closePacked() {
	if t.packedFile == nil {
		return
	}
	t.packed.close()
	t.packedFile, t.packed = nil, nil
	waiting := t.waiting
	t.waiting = nil
	for _, f := range waiting {
		t.enqueue(f, false)
	}
}

// maxTries is the number of opens of a missing or replaced file before that is reported as a problem.
const maxTries = 10

// cannotRead reports that a file cannot be read. A missing or replaced file is examined again within a second without a
// report.
func (t *Tailer) cannotRead(f *file, err error) {
	if err == nil {
		return
	}
	isPassing := isNotThere(err) || errors.Is(err, errSwapped) || errors.Is(err, errChanged)
	if f.tries++; isPassing && f.tries < maxTries {
		t.again[f] = true
		return
	}
	f.problem = true
	t.fail(f.fileKey, err)
}

// lookAgainAll examines the files that could not be read.
func (t *Tailer) lookAgainAll() {
	for f := range t.again {
		delete(t.again, f)
		if f.folder != nil {
			f.now.size = -1 // forces a difference at the next look
			t.agenda.looks = append(t.agenda.looks, f.fileKey)
		}
	}
}

// readContent reads the next lines of a file from its content.
func (t *Tailer) readContent(f *file, c *fileContent) (*Batch, error) {
	if !f.packed && f.end-f.mark.Offset > smallContent {
		if err := t.tooSparse(f, c); err != nil {
			return nil, err
		}
	}
	before, err := t.stand(f, c)
	if errors.Is(err, errChanged) {
		t.rewrite(f)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	f.compare = false
	p, isEnd, err := t.collect(f, c)
	if err != nil {
		return nil, err
	}
	f.tries = 0
	if f.problem {
		f.problem = false
		t.clear(f.fileKey)
	}
	if isEnd {
		t.reached(f, p)
	}
	if isEnd = t.fit(f, p) && isEnd; !isEnd && len(p.list) > 0 {
		t.enqueue(f, f.live)
	}
	return t.batch(f, p, before, isEnd), nil
}

// stand compares the content before the mark of a file, and returns its end. If the content differs, the error is
// errChanged.
func (t *Tailer) stand(f *file, c *fileContent) (before []byte, err error) {
	if pos := f.position; pos != nil {
		if _, err := t.prints.check(f.mark, c, f.compare); err != nil {
			return nil, err
		}
		m, err := t.prints.adopt(*pos, c)
		if err != nil {
			return nil, err
		}
		f.position = nil
		if pos.Note != "" {
			f.note = pos.Note
		}
		f.mark, f.acked, f.ackedTurn = m, m, f.turn
		t.dirty[f] = true
	}
	if f.mark.Offset > f.end || f.mark.Weak && f.compare {
		return nil, errChanged // or not known to be equal: the caller compares
	}
	if before, err = t.prints.check(f.mark, c, f.compare); err != nil {
		return nil, err
	}
	if !f.settled && t.since(f.changed) >= settle {
		f.settled = true
		t.dirty[f] = true
	}
	return before, nil
}

// rewrite restarts a file from its beginning.
func (t *Tailer) rewrite(f *file) {
	f.turn++
	f.mark, f.position, f.scanned = mark{}, nil, 0
	f.rewriting, f.first = true, true
}

// collect cuts the lines behind the mark of a file. isEnd means that there are no more lines for now.
func (t *Tailer) collect(f *file, c *fileContent) (p *pieces, isEnd bool, err error) {
	p = &pieces{at: f.mark.Offset, max: t.o.MaxLine}
	p.start, p.body = 0, 0
	if isTail, err := t.isLongTail(f, c); isTail || err != nil {
		return p, true, err
	}
	lines, room := fileLines-f.outLines, t.room(f)
	for at := p.at; at < c.size; at = p.at + int64(len(p.buf)) {
		n := min(int64(max(len(p.buf), firstChunk)), c.size-at)
		p.buf = slices.Grow(p.buf, int(n))
		chunk := p.buf[len(p.buf) : len(p.buf)+int(n)]
		if err := readFull(c, chunk, at); err != nil {
			return nil, false, err
		}
		p.buf = p.buf[:len(p.buf)+int(n)]
		p.cut(lines)
		if len(p.list) == lines || len(p.list) > 0 && int64(len(p.buf)) >= room {
			return p, false, nil
		}
	}
	return p, true, nil
}

// room returns how many bytes of a file may be delivered now.
func (t *Tailer) room(f *file) int64 {
	return max(0, min(fileBytes-f.outBytes, totalBytes-t.ready.bytes))
}

// isLongTail reports whether the content behind the mark is long and still has no line feed, without searching it
// again.
func (t *Tailer) isLongTail(f *file, c *fileContent) (bool, error) {
	if f.atEnd || f.scanned-f.mark.Offset < longTail || f.scanned > c.size || c.size-f.mark.Offset > int64(t.o.MaxLine) {
		return false, nil
	}
	buf := make([]byte, 256<<10)
	if err := readFull(c, buf[:span], f.scanned-span); err != nil {
		return false, err
	}
	if t.prints.print(print{}, buf[:span]) != f.tail {
		return false, nil
	}
	for at := f.scanned; at < c.size; {
		part := buf[:min(int64(len(buf)), c.size-at)]
		if err := readFull(c, part, at); err != nil {
			return false, err
		}
		if bytes.IndexByte(part, '\n') >= 0 {
			return false, nil
		}
		at += int64(len(part))
	}
	return true, t.scannedTo(f, c, c.size)
}

// scannedTo records that there is no line feed between the mark of a file and an offset.
func (t *Tailer) scannedTo(f *file, c *fileContent, to int64) error {
	tail := make([]byte, span)
	if err := readFull(c, tail, to-span); err != nil {
		return err
	}
	f.scanned, f.tail = to, t.prints.print(print{}, tail)
	f.read = f.now
	t.torn[f] = true
	return nil
}

// reached handles the end of a file, and the content without a line feed there.
func (t *Tailer) reached(f *file, p *pieces) {
	f.read = f.now
	if f.atEnd {
		f.atEnd = false
		p.rest(t.o.Whole)
	} else if p.start < len(p.buf) {
		t.torn[f] = true
	}
	if rest := len(p.buf) - p.start; rest >= longTail {
		f.scanned = p.at + int64(len(p.buf))
		f.tail = t.prints.print(print{}, p.buf[len(p.buf)-span:])
	}
}

// fit drops lines above the delivery bounds, and returns true if it dropped none. A line that exceeds them alone waits
// until no other batch is unacknowledged.
func (t *Tailer) fit(f *file, p *pieces) bool {
	room, n := t.room(f), 0
	for n < len(p.list) && int64(p.list[n].to) <= room {
		n++
	}
	switch {
	case n == len(p.list):
		return true
	case n > 0:
	case f.outBytes > 0:
		f.parked = true
	case t.ready.bytes > 0 && t.ready.bytes+int64(p.list[0].to) > totalBytes:
		t.ready.alone, f.live, f.queue = f, true, &t.ready.live
		t.ready.live = append(queue{f}, t.ready.live...)
	default:
		n = 1
	}
	p.list = p.list[:n]
	return false
}

// batch makes a batch of the lines, or returns nil without lines.
func (t *Tailer) batch(f *file, p *pieces, before []byte, isEnd bool) *Batch {
	used := 0
	if n := len(p.list); n > 0 {
		used = p.list[n-1].to
	}
	if len(p.list) == 0 && !(f.rewriting && isEnd) {
		return nil
	}
	if used < len(p.buf)/2 {
		p.buf = slices.Clone(p.buf[:used]) // frees the unused part
	}
	f.mark = t.prints.advance(f.mark, before, p.buf[:used])
	f.isTold = true
	b := &Batch{Kind: Lines, File: f.File(), Lines: p.lines(), End: isEnd, Changed: f.changed, to: f.mark, bytes: int64(used)}
	if f.rewriting {
		b.Kind, b.First, b.Last = Rewritten, f.first, isEnd
		f.first, f.rewriting = false, !isEnd
	}
	return t.give(f, b)
}
