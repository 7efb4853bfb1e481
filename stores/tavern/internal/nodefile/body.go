package nodefile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tallylog/tally/stores/tavern/internal/frontmatter"
)

// Headers of the two sections that this package edits.
const (
	assignmentHeader  = "## Assignment"
	commitmentsHeader = "## Commitments"
)

// Prefixes of a commitment's lines, after white space.
const (
	assertionMark = "- Assertion:"
	failedMark    = "- Failed:"
	idMark        = "- Id:"
	moreMark      = "    |" // a further line of a failure
	bold          = "**"
)

// file is a node file with the positions of its parts.
type file struct {
	text []byte
	view frontmatter.View
	keys keys
	node Node

	first      int // start of the first section, or the end of the text
	assignment section
	section    section // of commitments: the last section with this header
	items      []item  // in the order of node.Commitments
}

// span is a range of the text.
type span struct{ from, to int }

// section is a part of the body with a header.
type section struct {
	there bool
	head  int  // start of the line after the header
	body  span // without surrounding white space; empty: at head
}

// item is the text of a commitment.
type item struct {
	status    span // empty: where a sign would be
	text      span // the description
	assertion span
	failed    []span // lines, each with its continuation lines
	lines     []span // all lines of the commitment
	written   string // its id
	bound     int    // start of the line after its assertion
	end       int    // start of the line after its last one
	whole     bool   // it has a description and an assertion
}

// line is a line of the text. to is before its line break, next is after it.
type line struct{ from, to, next int }

// lines yields the lines from an offset on.
func lines(text []byte, from int) func(func(line) bool) {
	return func(yield func(line) bool) {
		for at := from; at < len(text); {
			l := line{at, len(text), len(text)}
			if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
				l.to, l.next = at+n, at+n+1
				if l.to > at && text[l.to-1] == '\r' {
					l.to--
				}
			}
			if !yield(l) {
				return
			}
			at = l.next
		}
	}
}

// readBody finds the assignment and the commitments.
func (f *file) readBody() {
	var open *section // the one that the line belongs to
	var r items
	f.first = len(f.text)
	for l := range lines(f.text, f.view.Body()) {
		text := string(f.text[l.from:l.to])
		if strings.HasPrefix(text, "## ") {
			r.close(f)
			f.first = min(f.first, l.from)
			switch header := strings.TrimRightFunc(text, isBlank); {
			case header == commitmentsHeader:
				f.section = section{there: true, head: l.next, body: span{l.next, l.next}}
				open = &f.section
			case header == assignmentHeader && !f.assignment.there:
				f.assignment = section{there: true, head: l.next, body: span{l.next, l.next}}
				open = &f.assignment
			default:
				open = nil
			}
			continue
		}
		if open != nil && strings.TrimSpace(text) != "" {
			open.extend(f.text, l)
		}
		if open == &f.section {
			r.line(f, l)
		}
	}
	r.close(f)
	if !f.node.Servitor {
		f.node.Assignment = strings.ReplaceAll(string(f.text[f.assignment.body.from:f.assignment.body.to]), "\r\n", "\n")
	}
	f.derive()
}

// extend extends a section to a line that is not blank.
func (s *section) extend(text []byte, l line) {
	said := text[l.from:l.to]
	if s.body.from == s.body.to {
		s.body.from = l.from + len(said) - len(bytes.TrimLeftFunc(said, unicode.IsSpace))
	}
	s.body.to = l.from + len(bytes.TrimRightFunc(said, unicode.IsSpace))
}

// items parses commitments.
type items struct {
	now      *item
	c        Commitment
	inFailed bool // the previous line belongs to a failure
}

// close ends a commitment. Without a description and an assertion it is dropped.
func (r *items) close(f *file) {
	if r.now != nil && r.now.whole && r.now.bound > 0 {
		r.c.Failure = clean(r.c.Failure) // as Edit spells it
		f.items, f.node.Commitments = append(f.items, *r.now), append(f.node.Commitments, r.c)
	}
	*r = items{}
}

func (r *items) line(f *file, l line) {
	said := string(f.text[l.from:l.to])
	trimmed := strings.TrimFunc(said, isBlank)
	inFailed := r.inFailed
	r.inFailed = false
	switch {
	case r.now != nil && strings.HasPrefix(trimmed, assertionMark):
		r.asserts(f, l)
	case r.now != nil && strings.HasPrefix(trimmed, failedMark):
		r.c.Failure, r.inFailed = strings.TrimFunc(trimmed[len(failedMark):], unicode.IsSpace), true
		r.now.failed = append(r.now.failed, span{l.from, l.next})
		r.now.own(l)
	case r.now != nil && strings.HasPrefix(trimmed, idMark):
		r.now.written = strings.TrimFunc(trimmed[len(idMark):], isBlank)
		r.now.own(l)
	case inFailed && strings.HasPrefix(said, moreMark):
		r.c.Failure += "\n" + strings.TrimRightFunc(strings.TrimPrefix(said[len(moreMark):], " "), unicode.IsSpace)
		r.now.failed[len(r.now.failed)-1].to = l.next
		r.now.own(l)
		r.inFailed = true
	case strings.HasPrefix(trimmed, "- ") && strings.Contains(trimmed, bold):
		r.close(f)
		r.begin(f, l)
	}
}

// own adds a line to the commitment's.
func (it *item) own(l line) {
	it.lines, it.end = append(it.lines, span{l.from, l.next}), l.next
}

// asserts reads the text between the first and the last backtick of a line.
func (r *items) asserts(f *file, l line) {
	said := f.text[l.from:l.to]
	from, to := bytes.IndexByte(said, '`'), bytes.LastIndexByte(said, '`')
	if from == to {
		return
	}
	r.now.assertion, r.now.bound = span{l.from + from + 1, l.from + to}, l.next
	r.c.Assertion = string(said[from+1 : to])
	r.now.own(l)
}

// begin reads the first line of a commitment: a sign, and the description in bold.
func (r *items) begin(f *file, l line) {
	said := f.text[l.from:l.to]
	from := bytes.Index(said, []byte(bold))
	it := &item{status: span{l.from + from, l.from + from}}
	it.own(l)
	r.now, r.c = it, Commitment{Status: Pending}
	n := bytes.Index(said[from+len(bold):], []byte(bold))
	if n < 0 {
		return
	}
	it.whole, it.text = true, span{l.from + from + len(bold), l.from + from + len(bold) + n}
	r.c.Description = string(f.text[it.text.from:it.text.to])
	for _, part := range []span{{l.from, l.from + from}, {it.text.to, l.to}} {
		for _, s := range signs {
			if at := bytes.Index(f.text[part.from:part.to], []byte(s.sign)); at >= 0 {
				it.status, r.c.Status = span{part.from + at, part.from + at + len(s.sign)}, s.status
				return
			}
		}
	}
}

// Values of a servitor file's session_mode and effort_level.
var (
	modes   = []string{"", "normal", "acceptEdits", "plan", "bypassPermissions", "dontAsk"}
	efforts = []string{"", "low", "medium", "high", "max"}
)

// Odd lists values in an agent's file that Parse ignores: an unknown mode or effort, and an unknown sign of a
// commitment, which is read as pending. The file keeps them.
func Odd(text []byte) (list []string) {
	f, err := read(text)
	if err != nil {
		return nil
	}
	for _, it := range f.items {
		sign := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(text[it.lines[0].from:it.text.from-len(bold)])), "-"))
		if it.status.from == it.status.to && sign != "" {
			list = append(list, fmt.Sprintf("commitment %q: %q is not the sign of a status: read as pending", text[it.text.from:it.text.to], sign))
		}
	}
	for _, key := range []struct {
		name  string
		words []string
	}{{"session_mode", modes}, {"effort_level", efforts}} {
		if word := f.get(key.name); f.node.Servitor && !slices.Contains(key.words, word) {
			list = append(list, fmt.Sprintf("%s: %q: want %s", key.name, word, strings.Join(key.words[1:], ", ")))
		}
	}
	return list
}

// isBlank reports whether a character is white space inside a line.
func isBlank(r rune) bool { return r == '\t' || unicode.Is(unicode.Zs, r) }
