// Package plain spells things for people as plain text: sizes, numbers of things, and
// text of a log so that no terminal takes it for a command.
package plain

import (
	"fmt"
	"strings"
)

// Bytes spells a size for people.
func Bytes(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GB", float64(n)/(1<<30))
}

// Count spells a number of things: 1 turn, 2 turns.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Printable makes text from a log safe to print on a terminal: control
// characters but line feed and tab become visible, and those that turn the
// direction of text around or are not UTF-8 are replaced.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20:
			return r + 0x2400 // the picture of the control character
		case r == 0x7f:
			return 0x2421
		case r >= 0x80 && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return 0xfffd
		}
		return r
	}, s)
}
