// Package redact removes secrets of known shapes from a line before it is stored: API keys, private keys, tokens,
// passwords in URLs, and values that the caller supplies. docs/redaction.md lists the detected and the undetected
// secrets.
//
// A line is usually one JSON value. Then the search covers its strings and names, including escaped text and JSON
// inside strings, and each replacement stays within one string. So the line remains JSON, and all other bytes remain
// unchanged. Any other line, such as incomplete or binary text, is searched as a whole.
//
//	r, err := redact.New(redact.Options{Values: map[string]string{"DB_PASSWORD": os.Getenv("DB_PASSWORD")}})
//	...
//	line, found := r.Line(line)
//
// A secret is replaced by [redacted:RULE]. The mark reveals nothing of its bytes, not even a hash, which would allow
// tests of guesses.
package redact

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/tallylog/tally/internal/rawjson"
)

// Options add searches to the rules of this package.
type Options struct {
	// Values are secrets, keyed by the names in their marks, such as environment variables and their values. White
	// space around a value is ignored; the rest must have at least MinValue bytes. A value is found as plain text,
	// escaped, URL-encoded and in base64.
	Values map[string]string

	// Patterns are searched in each unescaped string of a line.
	Patterns []Pattern
}

// MinValue is the minimum length of a value in bytes. A shorter one occurs by chance.
const MinValue = 8

// A Pattern is a user's rule.
type Pattern struct {
	// Name is the name in the mark: 1 to 64 of A-Z a-z 0-9 _ . -
	Name string

	// Regexp is in Go's syntax (RE2). If it has groups, the first group is replaced, otherwise the whole match. If a
	// literal text occurs in every match, the pattern costs nothing on lines without that text.
	Regexp string
}

// Found is the number of replacements of a rule in a line. Overlapping secrets are replaced once, under the rule of the
// first.
type Found struct {
	Rule  string
	Count int
}

// A Redactor finds secrets. It is safe for concurrent use.
type Redactor struct {
	rules  []*ruleDef
	always []int // rules without words
	words  *automaton
}

// New returns a Redactor with the rules of [Rules] and of the options. Errors name the option, but never contain a
// value.
func New(o Options) (*Redactor, error) {
	rules := builtin()
	r := &Redactor{rules: slices.Clone(rules[:len(rules)-named])}
	for _, p := range o.Patterns {
		one, err := patternRule(p)
		if err != nil {
			return nil, err
		}
		r.rules = append(r.rules, one)
	}
	for _, name := range sortedKeys(o.Values) {
		one, err := valueRule(name, o.Values[name])
		if err != nil {
			return nil, err
		}
		r.rules = append(r.rules, one)
	}
	r.rules = append(r.rules, rules[len(rules)-named:]...) // if two rules find the same secret, the first counts
	r.words = newAutomaton()
	for _, word := range escapeWords {
		r.words.add(word, escapeWord)
	}
	for i, one := range r.rules {
		if len(one.words) == 0 {
			r.always = append(r.always, i)
		}
		for _, word := range one.words {
			r.words.add(word, int32(i))
		}
	}
	r.words.build()
	return r, nil
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Format writes only the type's name, because a Redactor contains secrets.
func (r *Redactor) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Redactor") }

// Line returns the line without its secrets, and the replacements by rule. It never changes its input, and returns it
// if there was nothing to replace. A second call with the result finds nothing more, unless a user's pattern depends on
// the text next to its match.
func (r *Redactor) Line(line []byte) ([]byte, []Found) {
	if len(r.always) == 0 && r.quiet(line) {
		return line, nil
	}
	spans, _ := r.find(line)
	if len(spans) == 0 {
		return line, nil
	}
	return r.replace(line, spans)
}

// find returns the spans to replace, in order and without overlaps, and the amount of work.
func (r *Redactor) find(line []byte) (spans []span, steps int) {
	f := finder{r: r}
	if rawjson.Check(line) == nil {
		f.strings(line)
	} else {
		f.text(plainView(line))
	}
	return cut(merge(f.spans), marksIn(line)), f.steps
}

// strings searches each string of a JSON line separately. It also searches the whole line, for example for a header
// whose name and value are two strings, and keeps matches within one string.
func (f *finder) strings(line []byte) {
	f.detect(plainView(line), false)
	whole := f.spans
	f.spans = nil
	sortSpans(whole)
	for i := bytes.IndexByte(line, '"'); i >= 0; {
		end := rawjson.StringEnd(line, i)
		for len(whole) > 0 && whole[0].from < end {
			if whole[0].from > i && whole[0].to < end {
				f.spans = append(f.spans, whole[0])
			}
			whole = whole[1:]
		}
		f.string(line, i+1, end-1)
		next := bytes.IndexByte(line[end:], '"')
		if next < 0 {
			break
		}
		i = end + next
	}
}

// string searches the text between the quotes of a string.
func (f *finder) string(line []byte, from, to int) {
	v, escaped := plainView(line[from:to]).decoded(backslashes)
	if v.level = 0; !escaped {
		v = plainView(line[from:to])
	}
	first := len(f.spans)
	f.text(v)
	for i := first; i < len(f.spans); i++ {
		f.spans[i].from += from
		f.spans[i].to += from
	}
}

const markBegin = "[redacted:"

// replace inserts the marks.
func (r *Redactor) replace(line []byte, spans []span) ([]byte, []Found) {
	out := make([]byte, 0, len(line)+len(spans)*len(markBegin))
	var found []Found
	last := 0
	for _, s := range spans {
		name := r.rules[s.rule].name
		out = append(out, line[last:s.from]...)
		out = append(out, markBegin...)
		out = append(out, name...)
		out = append(out, ']')
		last = s.to
		i := slices.IndexFunc(found, func(f Found) bool { return f.Rule == name })
		if i < 0 {
			i = len(found)
			found = append(found, Found{Rule: name})
		}
		found[i].Count++
	}
	return append(out, line[last:]...), found
}

// marksIn returns the positions of the marks in a line.
func marksIn(line []byte) []span {
	var list []span
	for i := 0; ; {
		n := bytes.Index(line[i:], []byte(markBegin))
		if n < 0 {
			return list
		}
		from := i + n
		i = from + len(markBegin)
		end := i
		for end < len(line) && end-i <= maxName && nameBytes[line[end]] {
			end++
		}
		if end > i && end-i <= maxName && end < len(line) && line[end] == ']' {
			list = append(list, span{from: from, to: end + 1})
			i = end + 1
		}
	}
}

const maxName = 64

var nameBytes = classOf("A-Za-z0-9_.-")

// checkName checks the name of a pattern or value.
func checkName(kind, name string) error {
	ok := name != "" && len(name) <= maxName
	for i := range len(name) {
		ok = ok && nameBytes[name[i]]
	}
	if !ok {
		return fmt.Errorf("redact: %s %q: a name is 1 to %d of A-Z a-z 0-9 _ . -", kind, name, maxName)
	}
	return nil
}

// A span is the text to be replaced by a rule; to is exclusive.
type span struct {
	from, to int
	rule     int32
}

func sortSpans(s []span) {
	slices.SortFunc(s, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		if a.to != b.to {
			return b.to - a.to
		}
		return int(a.rule - b.rule)
	})
}

// merge joins overlapping spans.
func merge(spans []span) []span {
	sortSpans(spans)
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && s.from < out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// cut removes existing marks from spans, so that they remain.
func cut(spans, marks []span) []span {
	if len(marks) == 0 {
		return spans
	}
	var out []span
	for _, s := range spans {
		for len(marks) > 0 && marks[0].to <= s.from {
			marks = marks[1:]
		}
		for _, m := range marks {
			if m.from >= s.to {
				break
			}
			if m.from > s.from {
				out = append(out, span{s.from, m.from, s.rule})
			}
			s.from = min(m.to, s.to)
		}
		if s.from < s.to {
			out = append(out, s)
		}
	}
	return out
}
