package redact

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
)

const (
	esc     = 0x1b
	csiByte = 0x9b // ESC [ in one byte; in UTF-8 another byte precedes it
)

// escSpellings are the texts that tools print for ESC. \u001b and similar forms are recognised behind any number of
// backslashes.
var escSpellings = []string{"\x1b", "^[", "%1b", "&#27;", "&#x1b;", "&#x001b;", "=1b", "#033", "\u241b", "<esc>", "<1b>", "<0x1b>", "<u+001b>"}

var escBackslashed = []string{"u001b", "x1b", "033", "u{1b}", "u{001b}", "u{00001b}", "U0000001b", "e", "c["}

// csiSpellings are the texts that tools print for ESC [ as one character.
var csiSpellings = []string{"\u009b", "\x9b", "%c2%9b", "%9b", "&#155;", "&#x9b;", "=c2=9b"}

var csiBackslashed = []string{"u009b", "x9b", "233", "u{9b}"}

// bracketSpellings are the encodings of [ and ] behind an ESC.
var bracketSpellings = [2][]string{
	{"[", "%5b", "&#91;", "&#x5b;", "&lsqb;", "&lbrack;", "=5b", `\[`, `\x5b`, `\u005b`, `\\u005b`},
	{"]", "%5d", "&#93;", "&#x5d;", "&rsqb;", "&rbrack;", "=5d", `\]`, `\x5d`, `\u005d`, `\\u005d`},
}

// semicolons are the encodings of the semicolon between parameters.
var semicolons = []string{"%3b", "&#59;", "&#x3b;", "&semi;"}

// stringEnds are the ends of a string for the terminal, in addition to an encoded ESC with a backslash.
var stringEnds = []string{"\a", "\u009c", "^g", "%07", "&#7;", "&#x7;", "=07", `\u0007`, `\x07`, `\007`, `\a`}

var endStarts = startsOf(append(stringEnds, escSpellings...), `\E`)

// sequenceWords indicate a sequence in a text. Of colours without their ESC, they cover those that tools use.
var sequenceWords = append(slices.Concat(escSpellings, lostColours()), "u001b", `\x1b`, `\033`, `\e[`, `\e]`, "u{1b}", "0000001b", "esc[", "esc]",
	"u009b", `\x9b`, "\u009b")

func lostColours() (words []string) {
	for _, s := range []string{"0", "00", "1", "01", "2", "3", "4", "7", "38", "48"} {
		words = append(words, "["+s+"m", "["+s+";")
	}
	for n := range 10 {
		words = append(words, fmt.Sprintf("[3%dm", n), fmt.Sprintf("[4%dm", n), fmt.Sprintf("[9%dm", n), fmt.Sprintf("[2%dm", n))
	}
	return words
}

// sequenceStarts are the first bytes of encoded sequences.
var sequenceStarts = startsOf(append(escSpellings, csiSpellings...), `\[E`)

func startsOf(words []string, more string) (starts [256]bool) {
	for _, w := range words {
		starts[w[0]] = true
	}
	for _, c := range []byte(more) {
		starts[c] = true
	}
	return starts
}

// stripped returns the text with its terminal sequences replaced by as.
func (v view) stripped(as string) (out view, other bool) {
	if !slices.ContainsFunc(v.text, func(c byte) bool { return sequenceStarts[c] }) {
		return view{}, false
	}
	w := rewrite(v)
	for i := 0; i < len(v.text); {
		n := 0
		if c := v.text[i]; sequenceStarts[c] && (c != csiByte || i == 0 || v.text[i-1] < utf8.RuneSelf) { // not inside a UTF-8 character
			n = sequence(v.text[i:])
		}
		if n > 0 {
			w.put(i, i+n, []byte(as))
		}
		i += max(n, 1)
	}
	return w.view()
}

// sequence returns the length of the terminal sequence at the start of a text, or 0. It is a control sequence, a string
// for the terminal, or ESC with its arguments.
func sequence(s []byte) int {
	if n := csi(s); n > 0 {
		return n + controls(s[n:])
	}
	n, only := escape(s)
	if n == 0 {
		return lost(s)
	}
	rest := s[n:]
	if b := oneOf(rest, bracketSpellings[0]); b > 0 {
		return n + b + controls(rest[b:])
	}
	if b := oneOf(rest, bracketSpellings[1]); b > 0 {
		return n + b + message(rest[b:])
	}
	if only || len(rest) == 0 {
		return 0
	}
	switch c := rest[0]; {
	case c == 'P' || c == 'X' || c == '^' || c == '_':
		return n + 1 + message(rest[1:])
	case ' ' <= c && c <= '/':
		return n + charset(rest)
	case '0' <= c && c <= '~':
		return n + 1
	}
	return n
}

func csi(s []byte) int {
	if n := oneOf(s, csiSpellings); n > 0 {
		return n
	}
	if n := slashes(s); n > 0 {
		if m := oneOf(s[n:], csiBackslashed); m > 0 {
			return n + m
		}
	}
	return 0
}

// escape returns the length of the ESC at the start of a text. only means that it counts as ESC only before a bracket,
// because the text has other meanings.
func escape(s []byte) (n int, only bool) {
	if n := oneOf(s, escSpellings); n > 0 {
		return n, s[0] == '^' || s[0] == '='
	}
	if n := slashes(s); n > 0 {
		if m := oneOf(s[n:], escBackslashed); m > 0 {
			return n + m, m == 1
		}
		return 0, false
	}
	if hasPrefix(s, "ESC") {
		return len("ESC"), true
	}
	return 0, false
}

// slashes returns the number of backslashes at the start of a text.
func slashes(s []byte) int {
	n := 0
	for n < len(s) && n < 8 && s[n] == '\\' {
		n++
	}
	return n
}

// oneOf returns the length of the word at the start of a text, ignoring case.
func oneOf(s []byte, words []string) int {
	for _, w := range words {
		if len(s) >= len(w) && toLower(s[0]) == toLower(w[0]) && commonFold(s, w) == len(w) {
			return len(w)
		}
	}
	return 0
}

// controls returns the length of the rest of a control sequence: parameters, intermediate bytes, and the final byte.
func controls(s []byte) int {
	const limit = 64
	n := 0
	for n < len(s) && n < limit {
		if '0' <= s[n] && s[n] <= '?' {
			n++
		} else if m := oneOf(s[n:], semicolons); m > 0 {
			n += m
		} else {
			break
		}
	}
	for n < len(s) && n < limit && ' ' <= s[n] && s[n] <= '/' {
		n++
	}
	if n < len(s) && '@' <= s[n] && s[n] <= '~' {
		return n + 1
	}
	return 0
}

// message returns the length of the rest of a string for the terminal with its end. If the line does not contain the
// end, it returns 0.
func message(s []byte) int {
	const limit = 4096
	s = s[:min(len(s), limit)]
	if n := bytes.IndexByte(s, '\n'); n >= 0 {
		s = s[:n]
	}
	for i, c := range s {
		if !endStarts[c] {
			continue
		}
		if n := oneOf(s[i:], stringEnds); n > 0 {
			return i + n
		}
		if n, _ := escape(s[i:]); n > 0 {
			return i + n + slashes(s[i+n:])
		}
	}
	return 0
}

// charset returns the length of the name of a character set.
func charset(s []byte) int {
	n := 0
	for n < len(s) && n < 4 && ' ' <= s[n] && s[n] <= '/' {
		n++
	}
	if n < len(s) && '0' <= s[n] && s[n] <= '~' {
		n++
	}
	return n
}

// lost returns the length of a colour sequence without its ESC, as in logs of some build servers: [1;31m and further
// sequences right behind it.
func lost(s []byte) int {
	n := lostColour(s, 1)
	for n > 0 {
		more := lostColour(s[n:], 0)
		if more == 0 {
			break
		}
		n += more
	}
	return n
}

func lostColour(s []byte, digits int) int {
	if len(s) == 0 || s[0] != '[' {
		return 0
	}
	n := 1
	for n < len(s) && n < 24 && ('0' <= s[n] && s[n] <= '9' || s[n] == ';') {
		n++
	}
	if n-1 < digits || n == len(s) || s[n] != 'm' && (s[n] != 'K' || digits > 0) {
		return 0
	}
	return n + 1
}
