package redact

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// A spelling is an encoding of characters by other characters.
type spelling struct {
	begin byte // first byte of each encoded character
	// read appends the decoded start of text to dst. size is the number of decoded bytes, 0 if text does not begin with
	// an encoded character.
	read func(dst, text []byte) (out []byte, size int)
}

var (
	backslashes = spelling{'\\', readBackslash}
	percents    = spelling{'%', readPercent}
	entities    = spelling{'&', readEntity}
	quotedPrint = spelling{'=', readQuotedPrintable}
)

// escapes are the first bytes of escaped characters. Escape sequences of terminals are detected by words instead.
var escapes = [256]bool{'\\': true, '%': true, '&': true}

// escapedAt reports whether there may be an escape right before i, so that the bytes there may mean something else.
func escapedAt(text []byte, i int) bool {
	return slices.ContainsFunc(text[max(0, i-8):i], func(c byte) bool { return escapes[c] })
}

// escapeEnds reports whether a text ends with an escaped character of a URL (%22) or with a control character in caret
// notation (^I).
func escapeEnds(text []byte) bool {
	n := len(text)
	if n >= 2 && text[n-2] == '^' && '@' <= text[n-1] && text[n-1] <= '_' {
		return true
	}
	if n < 3 || text[n-3] != '%' {
		return false
	}
	_, ok := hexByte(text[n-2:])
	return ok
}

// decoded resolves the escapes of one spelling once. Invalid escapes stay, and a lone surrogate becomes U+FFFD.
func (v view) decoded(s spelling) (out view, other bool) {
	if bytes.IndexByte(v.text, s.begin) < 0 {
		return view{}, false
	}
	return v.resolved(s)
}

func (v view) resolved(s spelling) (out view, other bool) {
	w := rewrite(v)
	buf := make([]byte, 0, utf8.UTFMax)
	for i := bytes.IndexByte(v.text, s.begin); i >= 0; {
		as, size := s.read(buf, v.text[i:])
		if size > 0 {
			w.put(i, i+size, as)
		}
		i += max(size, 1)
		next := bytes.IndexByte(v.text[i:], s.begin)
		if next < 0 {
			break
		}
		i += next
	}
	out, other = w.view()
	out.level++
	return out, other
}

// readBackslash decodes escapes of JSON, C, Go, Python and shells.
func readBackslash(dst, s []byte) ([]byte, int) {
	if len(s) < 2 {
		return dst, 0
	}
	if c, ok := backslashed[s[1]]; ok {
		return append(dst, c), 2
	}
	switch s[1] {
	case 'u':
		if len(s) > 2 && s[2] == '{' {
			return readDigits(dst, s, 3, 16, "}")
		}
		return unicodeEscape(dst, s)
	case 'U':
		return readFixed(dst, s, 2, 8)
	case 'x':
		if c, ok := hexByte(s[2:]); ok {
			return append(dst, c), 4
		}
	case '0', '1':
		if len(s) >= 4 && octal(s[2]) && octal(s[3]) {
			return append(dst, (s[1]-'0')<<6|(s[2]-'0')<<3|(s[3]-'0')), 4
		}
	}
	return dst, 0
}

var backslashed = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'a': 7, 'v': '\v', 'e': esc}

func octal(c byte) bool { return '0' <= c && c <= '7' }

func unicodeEscape(dst, s []byte) ([]byte, int) {
	r, ok := hex4(s)
	if !ok {
		return dst, 0
	}
	if low, ok := hex4(s[6:]); ok && utf16.IsSurrogate(r) {
		if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
			return utf8.AppendRune(dst, both), 12
		}
	}
	return utf8.AppendRune(dst, r), 6 // AppendRune writes U+FFFD for a surrogate
}

// hex4 decodes \uXXXX.
func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	r, n := number(s[2:6], 16)
	return r, n == 4
}

// readFixed decodes a character whose number has a fixed count of hexadecimal digits from i on.
func readFixed(dst, s []byte, i, digits int) ([]byte, int) {
	if len(s) < i+digits {
		return dst, 0
	}
	r, n := number(s[i:i+digits], 16)
	if n != digits {
		return dst, 0
	}
	return utf8.AppendRune(dst, r), i + digits
}

// maxDigits is the maximum number of digits that readDigits reads.
const maxDigits = 8

// readDigits decodes a character whose number starts at i, has at most maxDigits digits and ends with a word.
func readDigits(dst, s []byte, i int, base rune, last string) ([]byte, int) {
	if i >= len(s) {
		return dst, 0
	}
	r, n := number(s[i:min(len(s), i+maxDigits)], base)
	if n == 0 || !hasPrefix(s[i+n:], last) {
		return dst, 0
	}
	return utf8.AppendRune(dst, r), i + n + len(last)
}

// number parses digits. A number above utf8.MaxRune is returned as an invalid rune.
func number(s []byte, base rune) (r rune, n int) {
	for ; n < len(s); n++ {
		d, ok := digitAt(s[n])
		if !ok || d >= base {
			break
		}
		if r = r*base + d; r > utf8.MaxRune {
			r = utf8.MaxRune + 1
		}
	}
	return r, n
}

func digitAt(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	}
	return 0, false
}

// hexByte parses two hexadecimal digits.
func hexByte(s []byte) (c byte, ok bool) {
	if len(s) < 2 {
		return 0, false
	}
	r, n := number(s[:2], 16)
	return byte(r), n == 2
}

func readPercent(dst, s []byte) ([]byte, int) {
	if c, ok := hexByte(s[1:]); ok {
		return append(dst, c), 3
	}
	return dst, 0
}

// namedEntities are the HTML entities of characters in a token or next to it.
var namedEntities = []struct {
	name string
	is   byte
}{
	{"quot;", '"'}, {"amp;", '&'}, {"apos;", '\''}, {"lt;", '<'}, {"gt;", '>'}, {"nbsp;", ' '}, {"equals;", '='}, {"colon;", ':'}, {"lowbar;", '_'},
	{"period;", '.'}, {"sol;", '/'}, {"plus;", '+'}, {"lsqb;", '['}, {"lbrack;", '['}, {"commat;", '@'}, {"Tab;", '\t'}, {"NewLine;", '\n'},
}

func readEntity(dst, s []byte) ([]byte, int) {
	s = s[:min(len(s), 12)]
	switch {
	case hasPrefix(s, "&#x") || hasPrefix(s, "&#X"):
		return readDigits(dst, s, 3, 16, ";")
	case hasPrefix(s, "&#"):
		return readDigits(dst, s, 2, 10, ";")
	}
	for _, e := range namedEntities {
		if hasPrefix(s[1:], e.name) {
			return append(dst, e.is), 1 + len(e.name)
		}
	}
	return dst, 0
}

// readQuotedPrintable decodes =3D, in upper case as in mail, and a soft line break.
func readQuotedPrintable(dst, s []byte) ([]byte, int) {
	switch {
	case hasPrefix(s, "=\r\n"):
		return dst, 3
	case hasPrefix(s, "=\n"):
		return dst, 2
	case len(s) < 3 || 'a' <= s[1] && s[1] <= 'f' || 'a' <= s[2] && s[2] <= 'f':
		return dst, 0
	}
	if c, ok := hexByte(s[1:]); ok {
		return append(dst, c), 3
	}
	return dst, 0
}
