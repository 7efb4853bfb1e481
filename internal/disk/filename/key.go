package filename

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Key returns a path in a form that attributes and JSON strings can hold: bytes that are not UTF-8 become =XX, and so
// do bytes that would look like an escape. Unescape is the inverse.
func Key(path string) string {
	if utf8.ValidString(path) && !strings.Contains(path, "=") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && n == 1 || IsEscape(path[i:]) {
			fmt.Fprintf(&b, "=%02X", path[i])
		} else {
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	return b.String()
}
