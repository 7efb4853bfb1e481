package rawjson

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// String decodes one JSON string. It returns a *SyntaxError if b does not pass [Check], and a *FieldError if b is not a
// string or has an escaped lone surrogate, which no Go string can hold.
func String(b []byte) (string, error) {
	r := reader{b: b}
	i, err := start(b)
	var s []byte
	if err == nil {
		s, i, err = r.str(i)
	}
	if err == nil {
		err = finish(b, i)
	}
	if err != nil {
		return "", settle(b, err)
	}
	return string(s), nil
}

// unescape resolves the escapes inside a string. It returns false for a lone surrogate.
func unescape(s []byte) ([]byte, bool) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			out = append(out, s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		if c == 'u' {
			r, _ := hex4(s, i)
			i += 4
			if utf16.IsSurrogate(r) {
				if i+1 >= len(s) || s[i] != '\\' || s[i+1] != 'u' {
					return nil, false
				}
				low, _ := hex4(s, i+2)
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return nil, false
				}
				i += 6
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		if n := strings.IndexByte(shortEscapes, c); n >= 0 {
			c = shortEscaped[n]
		}
		out = append(out, c)
	}
	return out, true
}

// Controls with a one-letter escape, and their letters.
const (
	shortEscaped = "\b\t\n\f\r"
	shortEscapes = "btnfr"
)

func hex4(b []byte, i int) (r rune, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// AppendString appends s as a JSON string with the escapes of JSON.stringify: `\"`, `\\`, the letters b, t, n, f and r
// after a backslash, and \u00xx for the other controls. Everything else is unchanged, including U+2028 and `<`. Bytes
// that are not UTF-8 become \ufffd: it is for text that is shown; [Marshal] refuses them.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	n := len(dst)
	dst = append(dst, s...)
	i := plain(dst, n) - n
	if i == len(s) { // by far the most common case
		return append(dst, '"')
	}
	dst = dst[:n+i]
	for i < len(s) {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, `\ufffd`...)
			} else {
				dst = append(dst, s[i:i+size]...)
			}
			i += size
			continue
		}
		i++
		if c == '"' || c == '\\' {
			dst = append(dst, '\\', c)
		} else if c >= ' ' {
			dst = append(dst, c)
		} else if n := strings.IndexByte(shortEscaped, c); n >= 0 {
			dst = append(dst, '\\', shortEscapes[n])
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(dst, '"')
}
