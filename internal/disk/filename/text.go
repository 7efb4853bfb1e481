package filename

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text returns a path as UTF-8, for stores with such names: bytes that are not UTF-8 become =XX, and an equals sign
// before two characters that would read as such an escape becomes =3D. [OfText] is the inverse.
func Text(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "=%02X", path[i])
		case path[i] == '=' && isByte(path[i:]):
			b.WriteString("=3D")
		default:
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	return b.String()
}

// OfText returns the path that Text encodes as text, and false if no path has it.
func OfText(text string) (path string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if isByte(text[i:]) {
			b.WriteByte(byte(strings.IndexByte(upperHex, text[i+1])<<4 | strings.IndexByte(upperHex, text[i+2])))
			i += 2
			continue
		}
		b.WriteByte(text[i])
	}
	path = b.String()
	return path, Text(path) == text
}

// isByte reports whether text begins with an escape that Text writes: of a byte that is not ASCII, or of an equals sign
// before something that would read as an escape.
func isByte(s string) bool {
	if s[0] != '=' {
		return false
	}
	for len(s) > 2 && s[1:3] == "3D" {
		s = s[2:] // the rest, with an equals sign of its own
	}
	return len(s) > 2 && strings.IndexByte(upperHex[8:], s[1]) >= 0 && isHex(s[2])
}
