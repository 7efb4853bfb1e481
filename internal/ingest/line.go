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

// extLine is the extension with the position of a line: <file>:<offset>+<length>.
const extLine = events.ExtLine

// extOwner is the extension of a line that is stored in another session than its file's. It names the file's session.
const extOwner = events.ExtLineOwner

// maxLine is the maximum length of a line. Even in base64, and with redaction marks that are longer than the redacted
// text, it fits in an event.
const maxLine = 4 << 20

// maxBlank is the maximum number of blank bytes before a line in its meta.
const maxBlank = 64 << 10

// lineParts is a line of a file as it is stored: blank bytes, body, line end.
type lineParts struct {
	agents.Span
	before, eol string
	body        []byte // redacted
	isJSON      bool
	redacted    int
	isErased    bool           // the log has lost its body
	found       []redact.Found // redactions, if it was just read
}

// at returns where the body begins in the file.
func (l *lineParts) at() int64 { return l.Start + int64(len(l.before)) }

// size returns the length of the body in the file.
func (l *lineParts) size() int64 { return l.End - l.Start - int64(len(l.before)+len(l.eol)) }

// linesOf converts lines that were read. A blank line is a line, and so are many blank bytes before a line.
func (in *Ingester) linesOf(read []tail.Line) []lineParts {
	list := make([]lineParts, 0, len(read))
	for _, r := range read {
		if len(r.Before) > maxBlank && len(r.Bytes) > 0 {
			list = append(list, in.lineOf(tail.Line{Before: r.Before, Offset: r.Offset}))
			r.Before = nil
		}
		list = append(list, in.lineOf(r))
	}
	return list
}

func (in *Ingester) lineOf(r tail.Line) lineParts {
	start := r.Offset - int64(len(r.Before))
	l := lineParts{Span: agents.Span{Start: start, End: start + r.Len()}, before: string(r.Before), eol: r.End, body: r.Bytes}
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

// redact removes secrets from a line, before any other use.
func (l *lineParts) redact(in *Ingester) {
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

// entry returns the turn of a line.
func (l *lineParts) entry(m agents.Meaning) (events.Entry, error) {
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

// decodeLine decodes a line from its event.
func decodeLine(e events.Entry, at agents.Span) (l lineParts, err error) {
	meta, err := events.LineMetaOf(e.Meta)
	l = lineParts{Span: at, before: meta.Before, eol: "\n", body: e.Bytes, redacted: meta.Redacted}
	if meta.EOL != nil {
		l.eol = *meta.EOL
	}
	if len(e.Turn) > 0 {
		l.body, l.isJSON = e.Turn, true
	}
	return l, err
}

// part returns bytes of the line, by their position in the file. It returns false if they are partly in and partly
// outside the body, or if the line was redacted.
func (l *lineParts) part(from, to int64) (text []byte, ok bool) {
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

// from returns the rest of the line from a position outside its body. It returns false for a position in the body.
func (l *lineParts) from(at int64) (rest lineParts, ok bool) {
	rest = *l
	rest.Start = at
	if end := l.at() + l.size(); at >= end {
		return lineParts{Span: rest.Span, body: []byte(l.eol[at-end:])}, true
	}
	if at > l.at() {
		return lineParts{}, false
	}
	rest.before = l.before[at-l.Start:]
	return rest, true
}

// storedLine is a line in the log.
type storedLine struct {
	agents.Span
	body     int64 // start of its body
	size     int64 // length of its body
	at       events.Offset
	sum      textSum // of the stored bytes
	blanks   string  // blank bytes before it, and its line end
	redacted bool
	isErased bool
	session  string // session that has it; "": the file's
}

func (l *lineParts) storedAt(at events.Offset) storedLine {
	p := storedLine{Span: l.Span, body: l.at(), size: l.size(), at: at, sum: sumOf(l.body), blanks: "\n", redacted: l.redacted > 0, isErased: l.isErased}
	if l.before != "" || l.eol != "\n" { // otherwise all lines share one string
		p.blanks = l.before + l.eol
	}
	return p
}

// A complete value may be stored before its line has an end. The log then has this end as blank bytes before the next
// line. A reader that gets both at once has it as the line end.

// beginsWith reports whether the rest of a read line from a position consists of blank bytes that the log has before
// the body.
func (p *storedLine) beginsWith(l *lineParts, from int64) bool {
	if p.Start > from || l.End > p.body {
		return false
	}
	text, ok := l.part(from, l.End)
	return ok && string(text) == p.blanks[from-p.Start:l.End-p.Start]
}

// reach moves the start of a read line back to the blank bytes that the log has before it. They were compared with the
// end of the previous line.
func (p *storedLine) reach(l *lineParts) {
	if n := l.Start - p.Start; n > 0 && l.Start <= p.body && l.End > p.body {
		l.before, l.Start = p.blanks[:n]+l.before, p.Start
	}
}

// isIn reports whether a read line equals the stored one at its position. Redacted and erased lines are compared by
// position only.
func (p *storedLine) isIn(l *lineParts) bool {
	if p.Start < l.Start || p.End > l.End {
		return false
	}
	end := p.body + p.size
	before, ok := l.part(p.Start, p.body)
	eol, ok2 := l.part(end, p.End)
	if !ok || !ok2 || string(before)+string(eol) != p.blanks {
		return false
	}
	if p.body == l.at() && p.size == l.size() && (p.redacted || p.isErased || l.redacted > 0) {
		return true
	}
	body, ok := l.part(p.body, end)
	return ok && sumOf(body) == p.sum
}

// textSum replaces a text in memory.
type textSum [16]byte

func sumOf[T string | []byte](text T) textSum {
	h := sha256.Sum256([]byte(text))
	return textSum(h[:16])
}

// spell formats the position of a line.
func spell(name string, at agents.Span) string {
	return fmt.Sprintf("%s:%d+%d", escapeName(name), at.Start, at.End-at.Start)
}

// parse parses the position of a line, from the right.
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

// escapeName escapes a name for an attribute: invalid bytes become %XX.
func escapeName(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// idOf returns a valid id for a text.
func idOf(text string) string {
	if text = escapeName(text); len(text) <= events.MaxIDLen {
		return text
	}
	return events.DerivedID(text)
}

// timeOf returns the time if an event can have it, else the zero time.
func timeOf(t time.Time) time.Time {
	for _, year := range []int{t.Year(), t.UTC().Year()} {
		if year < 1 || year > 9999 {
			return time.Time{}
		}
	}
	return t
}
