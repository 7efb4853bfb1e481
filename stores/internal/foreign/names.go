package foreign

import (
	"strings"
	"unicode/utf8"
)

// KeyOf returns the name of a file in formats and attributes: its path, with bytes
// that are not UTF-8 as =XX.
func KeyOf(path string) string {
	if utf8.ValidString(path) && !hasEscape(path) {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && n == 1 || isEscape(path[i:]) {
			b.WriteString(escapeByte(path[i]))
			i++
			continue
		}
		b.WriteString(path[i : i+n])
		i += n
	}
	return b.String()
}

const upperHex = "0123456789ABCDEF"

func escapeByte(c byte) string { return string([]byte{'=', upperHex[c>>4], upperHex[c&15]}) }

func isEscape(s string) bool {
	return len(s) >= 3 && s[0] == '=' && strings.IndexByte(upperHex, s[1]) >= 0 && strings.IndexByte(upperHex, s[2]) >= 0
}

func hasEscape(s string) bool {
	for i := strings.IndexByte(s, '='); i >= 0 && i < len(s); i++ {
		if isEscape(s[i:]) {
			return true
		}
	}
	return false
}

// PathOf undoes keyOf.
func PathOf(key string) string {
	if !hasEscape(key) {
		return key
	}
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		if isEscape(key[i:]) {
			b.WriteByte(byte(strings.IndexByte(upperHex, key[i+1])<<4 | strings.IndexByte(upperHex, key[i+2])))
			i += 2
			continue
		}
		b.WriteByte(key[i])
	}
	return b.String()
}
