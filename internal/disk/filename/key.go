package filename

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Key returns a path as an attribute or a JSON string can hold it: bytes that are not UTF-8
// are =XX, and so is what could be taken for that. Unescape undoes it.
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
