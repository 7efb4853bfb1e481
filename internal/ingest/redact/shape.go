package redact

import (
	"fmt"
	"math"
	"regexp/syntax"
	"strings"
	"unicode"
)

// A shape describes a token as a regular expression without backtracking: a sequence of literals and repeated ASCII
// classes, each as long as possible. The search locates it by a literal in it.
type shape struct {
	before []shapePart // parts before the literal, from right to left
	word   string
	fold   bool // ignore case
	after  []shapePart
	first  int // part of after where the secret starts; -1: the secret is the whole shape
	strict bool
}

type shapePart struct {
	word     string // if not empty; otherwise the class below
	id       int    // of a repeated class whose runs a reader caches; 0: not cached
	fold     bool
	class    *class
	min, max int
	secret   bool
}

type class [256]bool

// classOf returns the bytes of a character class.
func classOf(in string) *class { return mustShape("x[" + in + "]").after[0].class }

// A match is the result of a rule at a position.
type match struct {
	from, to int
	ok       bool
	deeper   bool // an escape prevents the decision
}

func mustShape(text string) shape {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		panic(fmt.Sprintf("redact: shape %s: %v", text, err))
	}
	return shapeOf(partsOf(nil, re, false))
}

// partsOf appends the parts of an expression.
func partsOf(parts []shapePart, re *syntax.Regexp, secret bool) []shapePart {
	switch re.Op {
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			parts = partsOf(parts, sub, secret)
		}
	case syntax.OpCapture:
		parts = partsOf(parts, re.Sub[0], true)
	case syntax.OpLiteral:
		parts = appendWord(parts, shapePart{word: string(re.Rune), fold: re.Flags&syntax.FoldCase != 0, secret: secret})
	case syntax.OpCharClass:
		parts = append(parts, shapePart{class: newClass(re), min: 1, max: 1, secret: secret})
	case syntax.OpRepeat:
		maxCount := re.Max
		if maxCount < 0 {
			maxCount = math.MaxInt
		}
		parts = append(parts, shapePart{class: newClass(re.Sub[0]), min: re.Min, max: maxCount, secret: secret})
	case syntax.OpQuest:
		parts = append(parts, shapePart{class: newClass(re.Sub[0]), max: 1, secret: secret})
	default:
		panic(fmt.Sprintf("redact: a shape cannot have %v", re))
	}
	return parts
}

// appendWord joins a word with the previous one, if both have the same flags.
func appendWord(parts []shapePart, p shapePart) []shapePart {
	if n := len(parts); n > 0 && parts[n-1].class == nil && parts[n-1].secret == p.secret {
		last := &parts[n-1]
		if last.fold == p.fold || !strings.ContainsFunc(p.word, unicode.IsLetter) {
			last.word += p.word
			return parts
		}
	}
	return append(parts, p)
}

func newClass(re *syntax.Regexp) *class {
	if re.Op == syntax.OpLiteral && len(re.Rune) == 1 {
		var c class
		c[re.Rune[0]] = true
		return &c
	}
	if re.Op != syntax.OpCharClass {
		panic(fmt.Sprintf("redact: a shape cannot repeat %v", re))
	}
	var c class
	for i := 0; i < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= min(re.Rune[i+1], 255); r++ {
			c[r] = true
		}
	}
	return &c
}

// shapeOf splits parts at the first literal, by which the shape is located.
func shapeOf(parts []shapePart) shape {
	s := shape{first: -1}
	for len(parts) > 0 && parts[0].class != nil {
		s.before = append([]shapePart{parts[0]}, s.before...)
		parts = parts[1:]
	}
	s.word, s.fold, s.after = parts[0].word, parts[0].fold, parts[1:]
	for i, p := range s.after {
		if p.secret && s.first < 0 && !parts[0].secret {
			s.first = i
		}
	}
	s.strict = len(s.word) < 4 && len(s.before) == 0
	return s
}

// match examines a text with the word at i, in any case.
func (s *shape) match(t *reader, i int) (m match) {
	if !s.fold && string(t.text[i:i+len(s.word)]) != s.word {
		return m
	}
	from, ok := s.back(t, i)
	if !ok {
		return match{deeper: escapedAt(t.text, from)}
	}
	at, secret, ok := s.forward(t, i+len(s.word))
	if s.first >= 0 {
		from = secret
	} else if !s.begins(t, from) {
		return match{deeper: escapedAt(t.text, from)}
	}
	m = match{from: from, to: at, ok: ok, deeper: at < len(t.text) && escapes[t.text[at]]}
	m.ok = ok && s.endsAt(t, at)
	return m
}

// back matches the parts before the word.
func (s *shape) back(t *reader, i int) (from int, ok bool) {
	for _, p := range s.before {
		n := 0
		for n < p.max && i > 0 && p.class[t.text[i-1]] {
			i, n = i-1, n+1
		}
		t.steps += n
		if n < p.min {
			return i, false
		}
	}
	return i, true
}

// forward matches the parts behind the word.
func (s *shape) forward(t *reader, i int) (at, secret int, ok bool) {
	for n := range s.after {
		p := &s.after[n]
		if n == s.first {
			secret = i
		}
		to := p.run(t, i)
		if to < 0 {
			return i + p.common(t, i), secret, false
		}
		i = to
	}
	return i, secret, true
}

// run returns the end of the part at i, or -1 if the text does not match.
func (p *shapePart) run(t *reader, i int) int {
	if p.class == nil {
		if p.common(t, i) == len(p.word) && (p.fold || hasPrefix(t.text[i:], p.word)) {
			return i + len(p.word)
		}
		return -1
	}
	end := t.runEnd(p, i)
	if end-i < p.min {
		return -1
	}
	return end
}

// common returns the length of the matching beginning of a part that does not match.
func (p *shapePart) common(t *reader, i int) int {
	if p.class != nil {
		return t.runEnd(p, i) - i
	}
	n := commonFold(t.text[i:], p.word)
	t.steps += n + 1
	return n
}

// commonFold returns the length of the common prefix of a text and a word, ignoring case.
func commonFold(text []byte, word string) int {
	n := 0
	for n < len(text) && n < len(word) && toLower(word[n]) == toLower(text[n]) {
		n++
	}
	return n
}

var (
	alnum = classOf("A-Za-z0-9")
	wordy = classOf("A-Za-z0-9_-")
)

// begins reports whether a token may start at i: not inside a longer word, nor next to a mark. A token with a short
// prefix must not follow a hyphen either. An escaped character or a terminal sequence is not part of a word.
func (s *shape) begins(t *reader, i int) bool {
	if i == 0 || t.broken(i) {
		return true
	}
	c := t.text[i-1]
	switch {
	case c == '\\': // the token's first letter may belong to an escape
		return !escapeLetter(t.text[i])
	case c == ']':
		return !marked(t.text[:i])
	case escapeEnds(t.text[:i]):
		return true
	case len(s.before) > 0 && s.before[len(s.before)-1].class[c]:
		return false
	case s.strict:
		return !wordy[c]
	case len(s.before) > 0:
		return true
	}
	return !alnum[c]
}

func escapeLetter(c byte) bool { return strings.IndexByte(`bfnrtu"\/`, c) >= 0 }

// endsAt reports whether a token may end before i.
func (s *shape) endsAt(t *reader, i int) bool {
	if i == len(t.text) || t.broken(i) {
		return true
	}
	c := t.text[i]
	if last := s.after[len(s.after)-1]; last.class != nil && last.max > 1 && last.class[c] || s.strict && wordy[c] {
		return false
	}
	return !alnum[c] && !hasPrefix(t.text[i:], markBegin)
}

func hasPrefix(text []byte, s string) bool { return len(text) >= len(s) && string(text[:len(s)]) == s }

// marked reports whether a text ends with a mark.
func marked(text []byte) bool {
	tail := text[max(0, len(text)-len(markBegin)-maxName-1):]
	list := marksIn(tail)
	return len(list) > 0 && list[len(list)-1].to == len(tail)
}
