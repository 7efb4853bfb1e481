package tail

import "bytes"

// A Line is a line of a file.
type Line struct {
	Before []byte // blank lines right before it, of spaces, tabs, carriage returns and line feeds
	Bytes  []byte // without its end; empty only if there are only blank lines
	End    string // "\n", "\r\n", or "" if the line was delivered without an end or is cut
	Offset int64  // of Bytes in the file
	// Cut reports that the line is longer than Options.MaxLine. Bytes holds a part, and the next part follows as a line
	// at the next offset. If only the line end remains, it is a blank line.
	Cut bool
}

// Len returns the length of the line in its file, with the blank lines before it and its end.
func (l Line) Len() int64 { return int64(len(l.Before) + len(l.Bytes) + len(l.End)) }

// pieces cuts content into lines. The result does not depend on how the content is split into chunks.
type pieces struct {
	at    int64  // offset of buf
	buf   []byte // content read so far
	start int    // start of the uncut content, including blank lines
	body  int    // start of the line after them
	scan  int    // no line feed in buf[body:scan]
	max   int    // maximum bytes of a line, and of the blank lines before it
	list  []cut
}

// A cut is a line by its positions in buf.
type cut struct {
	start, body, end, to int // blank lines [start, body), line [body, end), line end [end, to)
	more                 bool
}

// cut cuts lines until there are limit lines or the content ends.
func (p *pieces) cut(limit int) {
	for len(p.list) < limit {
		i := bytes.IndexByte(p.buf[p.scan:], '\n')
		switch {
		case i >= 0 && p.fits(p.buf[p.body:p.scan+i]):
			p.line(p.scan + i + 1)
		case i >= 0 || len(p.buf)-p.body >= p.max+2: // with room for the longest line end
			p.long()
		default:
			p.scan = len(p.buf)
			return
		}
	}
}

// fits reports whether a line without its line feed is short enough.
func (p *pieces) fits(line []byte) bool {
	return len(line) <= p.max || len(line) == p.max+1 && line[p.max] == '\r'
}

// line adds the line that ends before to.
func (p *pieces) line(to int) {
	switch {
	case !blank(p.buf[p.body:to]):
		p.add(cut{start: p.start, body: p.body, end: to - ending(p.buf[p.body:to]), to: to})
	case to-p.start >= p.max:
		p.add(cut{start: p.start, body: to, end: to, to: to})
	default:
		p.body, p.scan = to, to
	}
}

// long adds a part of a line that is too long, or the blank lines before it.
func (p *pieces) long() {
	if p.body > p.start {
		p.add(cut{start: p.start, body: p.body, end: p.body, to: p.body})
		return
	}
	to := p.body + p.max
	p.add(cut{start: p.start, body: p.body, end: to, to: to, more: true})
}

func (p *pieces) add(c cut) {
	p.list = append(p.list, c)
	p.start, p.body, p.scan = c.to, c.to, c.to
}

// rest adds the content without a line end: blank lines, and the text after them if it is complete.
func (p *pieces) rest(whole func([]byte) bool) {
	tail := p.buf[p.body:]
	if blank(tail) {
		p.body = len(p.buf)
		tail = nil
	}
	switch {
	case len(tail) > 0 && whole != nil && whole(tail):
		p.add(cut{start: p.start, body: p.body, end: len(p.buf), to: len(p.buf)})
	case p.body > p.start:
		p.add(cut{start: p.start, body: p.body, end: p.body, to: p.body})
	}
}

// lines returns the lines; they share the memory of the content.
func (p *pieces) lines() []Line {
	list := make([]Line, len(p.list))
	for i, c := range p.list {
		list[i] = Line{
			Before: clip(p.buf[c.start:c.body]),
			Bytes:  clip(p.buf[c.body:c.end]),
			End:    string(p.buf[c.end:c.to]),
			Offset: p.at + int64(c.body),
			Cut:    c.more,
		}
	}
	return list
}

func clip(b []byte) []byte { return b[:len(b):len(b)] }

// ending returns the length of the line end.
func ending(line []byte) int {
	if bytes.HasSuffix(line, []byte("\r\n")) {
		return 2
	}
	return 1
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != '\n' && c != '\r' && c != ' ' && c != '\t' {
			return false
		}
	}
	return true
}
