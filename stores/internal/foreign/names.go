package foreign

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/filename"
)

// KeyOf returns the name of a file in formats and attributes: its path, with bytes
// that are not UTF-8 as =XX.
func KeyOf(path string) string {
	if utf8.ValidString(path) && !strings.Contains(path, "=") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && n == 1 || filename.IsEscape(path[i:]) {
			fmt.Fprintf(&b, "=%02X", path[i])
		} else {
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	return b.String()
}

// PathOf undoes KeyOf.
func PathOf(key string) string { return filename.Unescape(key) }
