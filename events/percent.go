package events

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// percentEncode encodes an attribute for a header: space, ", % and everything outside U+0021 to U+007E become the %XX
// of their UTF-8 bytes.
func percentEncode(s string) string {
	n := 0
	for i := 0; i < len(s); i++ {
		if mustEncode(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := 0; i < len(s); i++ {
		if c := s[i]; mustEncode(c) {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEncode(c byte) bool { return c < 0x21 || c > 0x7e || c == '"' || c == '%' }

// percentDecode undoes percentEncode, once. It accepts bytes that should have been encoded and were not. It refuses
// invalid UTF-8 (overlong forms too) and a % without two hexadecimal digits.
func percentDecode(name, s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err != nil {
		return "", invalid(name, "%q: a %% without two hexadecimal digits", s)
	}
	if !utf8.ValidString(text) {
		return "", invalid(name, "%q is no valid UTF-8", text)
	}
	return text, nil
}
