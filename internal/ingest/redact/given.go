package redact

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// minWord is the minimum length of a literal that locates matches of a pattern.
const minWord = 3

// patternRule makes a rule from a user's pattern.
func patternRule(p Pattern) (*ruleDef, error) {
	if err := checkName("pattern", p.Name); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(p.Regexp)
	if err != nil {
		return nil, fmt.Errorf("redact: pattern %s: %w", p.Name, err)
	}
	if re.MatchString("") {
		return nil, fmt.Errorf("redact: pattern %s matches an empty text", p.Name)
	}
	tree, err := syntax.Parse(p.Regexp, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("redact: pattern %s: %w", p.Name, err)
	}
	return &ruleDef{name: p.Name, words: literals(tree), search: func(text []byte) [][2]int { return groups(re, text) }}, nil
}

// groups returns the first group of each match, or the matches if there is no group.
func groups(re *regexp.Regexp, text []byte) [][2]int {
	var list [][2]int
	for _, m := range re.FindAllSubmatchIndex(text, -1) {
		n := 0
		if len(m) > 2 {
			n = 2
		}
		if m[n] < m[n+1] {
			list = append(list, [2]int{m[n], m[n+1]})
		}
	}
	return list
}

// literals returns words of which every match of an expression contains at least one, ignoring case. It returns none if
// there are no such words.
func literals(re *syntax.Regexp) []string {
	if words, ok := exact(re); ok {
		return plainWords(words)
	}
	switch re.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return literals(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return literals(re.Sub[0])
		}
	case syntax.OpConcat:
		return literalsOfConcat(re.Sub)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			words := literals(sub)
			if words == nil {
				return nil
			}
			all = append(all, words...)
		}
		return all
	}
	return nil
}

// literalsOfConcat prefers the part, or the adjacent parts, whose shortest word is the longest.
func literalsOfConcat(subs []*syntax.Regexp) []string {
	var best []string
	run := []string{""}
	for _, sub := range subs {
		words, ok := exact(sub)
		if both := joinWords(run, words); ok && both != nil {
			run = both
		} else {
			best = better(best, plainWords(run))
			best = better(best, literals(sub))
			run = []string{""}
		}
	}
	return better(best, plainWords(run))
}

func better(a, b []string) []string {
	if len(b) > 0 && (len(a) == 0 || shortest(b) > shortest(a)) {
		return b
	}
	return a
}

func shortest(words []string) int {
	n := len(words[0])
	for _, w := range words {
		n = min(n, len(w))
	}
	return n
}

// maxWords bounds the number of words that an expression may expand to.
const maxWords = 32

// exact returns the texts that an expression matches, if they are few.
func exact(re *syntax.Regexp) (words []string, ok bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, true
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}, true
	case syntax.OpCharClass:
		return few(re.Rune)
	case syntax.OpCapture:
		return exact(re.Sub[0])
	case syntax.OpQuest:
		words, ok = exact(re.Sub[0])
		return append(words, ""), ok
	case syntax.OpConcat:
		words = []string{""}
		for _, sub := range re.Sub {
			more, ok := exact(sub)
			if words = joinWords(words, more); !ok || words == nil {
				return nil, false
			}
		}
		return words, true
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			more, ok := exact(sub)
			if words = append(words, more...); !ok || len(words) > maxWords {
				return nil, false
			}
		}
		return words, true
	}
	return nil, false
}

// few returns the characters of a class, if they are few.
func few(ranges []rune) (words []string, ok bool) {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i+1]-ranges[i] >= maxWords {
			return nil, false
		}
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			words = append(words, string(r))
		}
	}
	return words, len(words) <= maxWords
}

// joinWords returns each word of a followed by each word of b, or nil if there are too many.
func joinWords(a, b []string) []string {
	if len(a)*len(b) > maxWords {
		return nil
	}
	var list []string
	for _, x := range a {
		for _, y := range b {
			list = append(list, x+y)
		}
	}
	return list
}

// plainWords returns a piece of each word, or nil if a word has no piece that is long enough.
func plainWords(words []string) []string {
	var list []string
	for _, w := range words {
		w = plainWord(w)
		if len(w) < minWord {
			return nil
		}
		list = append(list, w)
	}
	return list
}

// plainWord returns the longest piece of a text that every JSON encoder writes unchanged. (In a pattern that ignores
// case, s and k also match the long s and the Kelvin sign. The search does not cover these.)
func plainWord(s string) string {
	best := ""
	for _, piece := range strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r >= utf8.RuneSelf || r == '"' || r == '\\' }) {
		if len(piece) > len(best) {
			best = piece
		}
	}
	return best
}

// valueRule makes a rule from a secret value.
func valueRule(name, value string) (*ruleDef, error) {
	if err := checkName("value", name); err != nil {
		return nil, err
	}
	value = strings.TrimSpace(value)
	if len(value) < MinValue {
		return nil, fmt.Errorf("redact: the value of %s has %d bytes, want at least %d: a shorter one occurs by chance", name, len(value), MinValue)
	}
	if !utf8.ValidString(value) {
		return nil, fmt.Errorf("redact: the value of %s is not UTF-8", name)
	}
	forms := append([]form{{text: value}}, encoded(value)...)
	r := &ruleDef{name: name, search: func(text []byte) [][2]int { return occurrences(forms, text) }}
	for _, f := range forms {
		word := plainWord(f.text)
		if len(word) < minWord {
			r.words = nil // all its letters may be escaped, so it has no words to search by
			break
		}
		r.words = append(r.words, word)
	}
	return r, nil
}

// A form is an encoding of a value. In base64 the character before or behind it may contain bits of the value too.
type form struct {
	text           string
	before, behind bool
}

// encoded returns the forms of a value that differ from the value.
func encoded(value string) []form {
	var list []form
	have := map[string]bool{value: true}
	add := func(f form) {
		if !have[f.text] {
			have[f.text] = true
			list = append(list, f)
		}
	}
	for _, s := range []string{url.QueryEscape(value), url.PathEscape(value), strings.ReplaceAll(url.QueryEscape(value), "+", "%20")} {
		add(form{text: s})
		add(form{text: lowerHex(s)})
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			add(form{base64Core(enc, value, shift), shift > 0, (shift+len(value))%3 > 0})
		}
	}
	return list
}

// lowerHex writes the escapes of a URL in lower case.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			b[i+1], b[i+2] = toLower(b[i+1]), toLower(b[i+2])
		}
	}
	return string(b)
}

// base64Core returns the characters that depend on the value alone, if the value starts shift bytes into a group of
// three.
func base64Core(enc *base64.Encoding, value string, shift int) string {
	text := enc.EncodeToString(append(make([]byte, shift), value...))
	from := []int{0, 2, 3}[shift]
	to := (shift + len(value)) * 8 / 6
	return text[from:to]
}

var base64Any = classOf("A-Za-z0-9+/_-")

// occurrences returns the positions of the forms of a value.
func occurrences(forms []form, text []byte) [][2]int {
	var list [][2]int
	for _, f := range forms {
		for i := 0; ; {
			n := bytes.Index(text[i:], []byte(f.text))
			if n < 0 {
				break
			}
			from, to := i+n, i+n+len(f.text)
			i = to
			if f.before && from > 0 && base64Any[text[from-1]] {
				from--
			}
			if f.behind && to < len(text) && base64Any[text[to]] {
				to++
			}
			list = append(list, [2]int{from, to})
		}
	}
	return list
}
