// Package plain formats values as plain text: sizes, counts, and text from a log that is safe to print on a terminal.
package plain

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bytes formats a size.
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

// Count formats a number of things: 1 turn, 2 turns.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Printable makes text from a log safe to print on a terminal. Control characters except line feed and tab become
// visible. Characters that change the direction of text, that take no room, or that are not UTF-8 are replaced. Joiners
// between two characters of a script that needs them, or between two emoji, stay.
func Printable(s string) string {
	return replaced(s, func(b *strings.Builder, r rune) { b.WriteRune(visible(r)) })
}

// JSON makes JSON safe to print on a terminal. Characters that Printable replaces become escapes, so the meaning of the
// JSON stays.
func JSON(s string) string {
	return replaced(s, func(b *strings.Builder, r rune) {
		switch {
		case r < 0x20 && r != '\n' && r != '\t': // white space outside of strings
			r = ' '
		case visible(r) != r:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(b, `\u%04x`, unit)
			}
			return
		}
		b.WriteRune(r)
	})
}

// replaced returns a text in which write replaces each character that does not join two others.
func replaced(s string, write func(*strings.Builder, rune)) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	before := rune(0)
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		if after, _ := utf8.DecodeRuneInString(s[i+size:]); Joins(before, r, after) {
			b.WriteRune(r)
		} else {
			write(&b, r)
		}
		before = visible(r)
	}
	return b.String()
}

// isPlain reports whether text has only printable ASCII, line feeds and tabs.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// visible returns the replacement of a character.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case r < 0x20:
		return r + 0x2400 // the picture of the control character
	case r == 0x7f:
		return 0x2421
	case r == 0xad: // a hyphen where a line could break
		return '-'
	case r >= 0x80 && r < 0xa0, isHidden(r):
		return utf8.RuneError
	}
	return r
}

// isHidden reports whether a character is invisible: it changes the direction of text, or takes no room.
func isHidden(r rune) bool {
	switch {
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, // spaces without width, joiners, directions, separators
		r == 0x061c, r == 0x180e, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, // a mark of direction, a separator, the byte order mark, annotations
		r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, // fillers
		r >= 0xe0000 && r <= 0xe0fff: // tags, and variants beyond the first sixteen
		return true
	}
	return false
}

// Joins reports whether a character joins or separates its two neighbours, as in Arabic, Persian and the scripts of
// India, and in emoji that consist of several.
func Joins(before, r, after rune) bool {
	return (r == 0x200c || r == 0x200d) && isJoined(before) && isJoined(after)
}

func isJoined(r rune) bool {
	return r >= 0x0600 && r < 0x1000 || r >= 0x2190 && r < 0x2c00 || r == 0xfe0f || r >= 0x1f000 && r < 0x20000
}
