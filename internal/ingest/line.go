package ingest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/internal/rawjson"
)

// extLine is the extension that says where a line stands: <file>:<offset>+<length>.
const extLine = "tallyline"

// extOwner is the extension of a line that stands in another session than its file is of:
// it names that one.
const extOwner = "tallyowner"

// maxLine is how long a line may be. As bytes in base64, and with marks of a redaction
// that are longer than what they replace, it is still an event.
const maxLine = 4 << 20

// maxBlank is how many blank bytes before a line are part of its meta.
const maxBlank = 64 << 10

// line is a line of a file as it is stored: blank bytes, the body, what ends it.
type line struct {
	agents.Span
	before, eol string
	body        []byte // redacted
	isJSON      bool
	redacted    int
	found       []redact.Found // what was taken out, if it was read just now
}

// at is where the body begins in the file.
func (l *line) at() int64 { return l.Start + int64(len(l.before)) }

// size is how long the body is in the file.
func (l *line) size() int64 { return l.End - l.Start - int64(len(l.before)+len(l.eol)) }

// linesOf makes lines of what was read. A blank line is one, and so are many blank bytes
// before a line.
func (in *Ingester) linesOf(read []tail.Line) []line {
	list := make([]line, 0, len(read))
	for _, r := range read {
		if len(r.Before) > maxBlank && len(r.Bytes) > 0 {
			list = append(list, in.lineOf(tail.Line{Before: r.Before, Offset: r.Offset}))
			r.Before = nil
		}
		list = append(list, in.lineOf(r))
	}
	return list
}

func (in *Ingester) lineOf(r tail.Line) line {
	start := r.Offset - int64(len(r.Before))
	l := line{Span: agents.Span{Start: start, End: start + r.Len()}, before: string(r.Before), eol: r.End, body: r.Bytes}
	if len(r.Bytes) == 0 {
		l.before, l.body = "", append([]byte{}, r.Before...)
		return l
	}
	if trimmed := rawjson.Trim(r.Bytes); !r.Cut && len(trimmed) > 0 && rawjson.Check(trimmed) == nil {
		i := bytes.Index(r.Bytes, trimmed)
		l.before, l.eol = l.before+string(r.Bytes[:i]), string(r.Bytes[i+len(trimmed):])+r.End
		l.body, l.isJSON = trimmed, true
	}
	l.redact(in)
	return l
}

// redact takes secrets out of a line, before anybody else sees it.
func (l *line) redact(in *Ingester) {
	if in.o.Redactor == nil {
		return
	}
	var clean []byte
	clean, l.found = in.o.Redactor.Line(l.body)
	for _, f := range l.found {
		l.redacted += f.Count
	}
	if l.redacted > 0 {
		l.body, l.isJSON = clean, l.isJSON && rawjson.Check(clean) == nil
	}
}

// entry is the turn of a line.
func (l *line) entry(m agents.Meaning) (events.Entry, error) {
	e := events.Entry{Thread: m.Thread, ID: m.Turn}
	if at := timeOf(m.Time); !at.IsZero() {
		e.Timestamp = events.TimestampOf(at)
	}
	if l.isJSON {
		e.Turn = l.body
	} else {
		e.Bytes = append([]byte{}, l.body...)
	}
	meta := events.LineMeta{Before: l.before, Redacted: l.redacted}
	if l.eol != "\n" {
		meta.EOL = &l.eol
	}
	if meta.EOL == nil && meta.Before == "" && meta.Redacted == 0 {
		return e, nil
	}
	raw, err := rawjson.Marshal(meta)
	e.Meta = raw
	return e, err
}

// stored reads a line back from its event.
func stored(e events.Entry, at agents.Span) (l line, err error) {
	meta, err := events.LineMetaOf(e.Meta)
	l = line{Span: at, before: meta.Before, eol: "\n", body: e.Bytes, redacted: meta.Redacted}
	if meta.EOL != nil {
		l.eol = *meta.EOL
	}
	if len(e.Turn) > 0 {
		l.body, l.isJSON = e.Turn, true
	}
	return l, err
}

// part returns bytes of the line, by their places in the file; false if they are not all
// before the body, in it or behind it, or are not known, as something was redacted.
func (l *line) part(from, to int64) (text []byte, ok bool) {
	at, end := l.at(), l.at()+l.size()
	switch {
	case to <= at:
		return []byte(l.before[from-l.Start : to-l.Start]), true
	case from >= end:
		return []byte(l.eol[from-end : to-end]), true
	}
	if from < at || to > end || l.redacted > 0 {
		return nil, false
	}
	return l.body[from-at : to-at], true
}

// from returns what of the line begins at a place, which is not in its body; false if it is.
func (l *line) from(at int64) (rest line, ok bool) {
	rest = *l
	rest.Start = at
	if end := l.at() + l.size(); at >= end {
		return line{Span: rest.Span, body: []byte(l.eol[at-end:])}, true
	}
	if at > l.at() {
		return line{}, false
	}
	rest.before = l.before[at-l.Start:]
	return rest, true
}

// place is a line in the log.
type place struct {
	agents.Span
	body     int64 // where its body begins
	size     int64 // of its body
	at       events.Offset
	sum      sum    // of what is stored
	blanks   string // before it and its end
	redacted bool
	session  string // in which it stands; "": the file's
}

func (l *line) place(at events.Offset) place {
	p := place{Span: l.Span, body: l.at(), size: l.size(), at: at, sum: sumOf(l.body), blanks: "\n", redacted: l.redacted > 0}
	if l.before != "" || l.eol != "\n" { // else one string for all
		p.blanks = l.before + l.eol
	}
	return p
}

// A value that is whole may be taken before its line has an end. That end is then blank bytes
// before the next line, for the log; who reads both at once has it as an end.

// beginsWith reports whether all that a line which was read has from a place on are blank bytes
// that stand before the body in the log.
func (p *place) beginsWith(l *line, from int64) bool {
	if p.Start > from || l.End > p.body {
		return false
	}
	text, ok := l.part(from, l.End)
	return ok && string(text) == p.blanks[from-p.Start:l.End-p.Start]
}

// reach has a line that was read begin with the blank bytes that the log has before it, which
// were compared with the end of the line before.
func (p *place) reach(l *line) {
	if n := l.Start - p.Start; n > 0 && l.Start <= p.body && l.End > p.body {
		l.before, l.Start = p.blanks[:n]+l.before, p.Start
	}
}

// isIn reports whether a line that was read has at its place what the log has. What was
// redacted is known by its place alone.
func (p *place) isIn(l *line) bool {
	if p.Start < l.Start || p.End > l.End {
		return false
	}
	end := p.body + p.size
	before, ok := l.part(p.Start, p.body)
	eol, ok2 := l.part(end, p.End)
	if !ok || !ok2 || string(before)+string(eol) != p.blanks {
		return false
	}
	if p.body == l.at() && p.size == l.size() && (p.redacted || l.redacted > 0) {
		return true
	}
	body, ok := l.part(p.body, end)
	return ok && sumOf(body) == p.sum
}

// sum stands for a text in memory.
type sum [16]byte

func sumOf[T string | []byte](text T) sum {
	h := sha256.Sum256([]byte(text))
	return sum(h[:16])
}

// spell writes where a line stands.
func spell(name string, at agents.Span) string {
	return fmt.Sprintf("%s:%d+%d", clean(name), at.Start, at.End-at.Start)
}

// parse reads where a line stands, from the right.
func parse(text string) (name string, at agents.Span, ok bool) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "", at, false
	}
	from, length, ok := strings.Cut(text[colon+1:], "+")
	start, err := strconv.ParseInt(from, 10, 64)
	n, err2 := strconv.ParseInt(length, 10, 64)
	return text[:colon], agents.Span{Start: start, End: start + n}, ok && err == nil && err2 == nil && start >= 0 && n >= 0 && start+n >= 0
}

// clean spells a name such that it can stand in an attribute: bytes that cannot, as %XX.
func clean(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// idOf makes an id that can be stored.
func idOf(text string) string {
	if text = clean(text); len(text) <= events.MaxIDLen {
		return text
	}
	return events.DerivedID(text)
}

// timeOf returns a time that an event can have, zero if there is none.
func timeOf(t time.Time) time.Time {
	for _, year := range []int{t.Year(), t.UTC().Year()} {
		if year < 1 || year > 9999 {
			return time.Time{}
		}
	}
	return t
}
