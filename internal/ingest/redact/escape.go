package redact

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// A spelling writes characters in other characters.
type spelling struct {
	begin byte // each spelled character begins with it
	// read appends what text begins with to dst. size is how many bytes that took, 0 if
	// the text does not begin with a spelled character.
	read func(dst, text []byte) (out []byte, size int)
}

var (
	backslashes = spelling{'\\', readBackslash}
	percents    = spelling{'%', readPercent}
	entities    = spelling{'&', readEntity}
	quotedPrint = spelling{'=', readQuotedPrintable}
)

// escapes are bytes that the escape of a character begins with. Those to a terminal
// have words that tell.
var escapes = [256]bool{'\\': true, '%': true, '&': true}

// escapedAt reports whether an escape may stand before i, so that the bytes there are
// not what they seem.
func escapedAt(text []byte, i int) bool {
	return slices.ContainsFunc(text[max(0, i-8):i], func(c byte) bool { return escapes[c] })
}

// escapeEnds reports whether a text ends with a character of a URL that is escaped
// (%22) or with a control character in caret notation (^I).
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

// decoded resolves the escapes of one spelling once. What looks like one and is none
// stays, and a lone surrogate becomes U+FFFD.
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

// readBackslash reads the escapes of JSON and those of C, Go, Python and shells.
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
			return readDigits(dst, s, 3, 16, 8, "}")
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
	return utf8.AppendRune(dst, r), 6 // AppendRune makes U+FFFD of a surrogate
}

// hex4 reads \uXXXX.
func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	r, n := number(s[2:6], 16)
	return r, n == 4
}

// readFixed reads a character whose number has so many hexadecimal digits from i on.
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

// readDigits reads a character whose number begins at i, has at most so many digits
// and ends with a word.
func readDigits(dst, s []byte, i int, base rune, limit int, last string) ([]byte, int) {
	if i >= len(s) {
		return dst, 0
	}
	r, n := number(s[i:min(len(s), i+limit)], base)
	if n == 0 || !hasPrefix(s[i+n:], last) {
		return dst, 0
	}
	return utf8.AppendRune(dst, r), i + n + len(last)
}

// number reads digits; r has no meaning above 31 bits and is no character then.
func number(s []byte, base rune) (r rune, n int) {
	for ; n < len(s); n++ {
		d, ok := digit(s[n])
		if !ok || d >= base {
			break
		}
		if r = r*base + d; r > utf8.MaxRune {
			r = utf8.MaxRune + 1
		}
	}
	return r, n
}

func digit(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	}
	return 0, false
}

// hexByte reads two hexadecimal digits.
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

// namedEntities are those of HTML that stand for a character of a token or beside it.
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
		return readDigits(dst, s, 3, 16, 8, ";")
	case hasPrefix(s, "&#"):
		return readDigits(dst, s, 2, 10, 8, ";")
	}
	for _, e := range namedEntities {
		if hasPrefix(s[1:], e.name) {
			return append(dst, e.is), 1 + len(e.name)
		}
	}
	return dst, 0
}

// readQuotedPrintable reads =3D, in upper case as mail has it, and the end of a line
// that goes on in the next.
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
