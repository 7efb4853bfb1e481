package page

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/render/plain"
)

// visible returns text in which nothing is hidden and nothing reorders what stands beside
// it: control characters as everywhere in tally, other characters that are not seen by
// their number, [U+200B]. What joins letters or emoji stays where it does only that.
func visible(s string) string {
	var b strings.Builder
	var seen, last rune // the last character that is seen, and the last one of all
	for i, r := range s {
		switch {
		case !unseen(r):
			seen = r
		case selects(r) && last == seen && (isBase(seen) || strings.ContainsRune("0123456789#*", seen)):
		case (last == seen || selects(last)) && isBase(seen) && joins(last, r, s[i:]):
		default:
			fmt.Fprintf(&b, "[U+%04X]", r)
			seen, last = 0, r
			continue
		}
		b.WriteRune(r)
		last = r
	}
	return plain.Printable(b.String())
}

// unseen reports whether a character is not seen where it stands, or only by what it does
// to others: U+202E, which turns the order of what follows around, is one.
func unseen(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// selects reports whether a character says that the one before is text or an emoji. The
// other selectors, 256 of them, could carry whole sentences.
func selects(r rune) bool { return r == 0xfe0e || r == 0xfe0f }

// joins reports whether a character, with which rest begins, joins what is before it to
// what is seen behind it.
func joins(before, r rune, rest string) bool {
	after, _ := utf8.DecodeRuneInString(rest[utf8.RuneLen(r):])
	return plain.Joins(before, r, after) && isBase(after)
}

// isBase reports whether a character is seen and of a script, or among symbols, in which
// unseen ones have work to do. In ASCII they have none.
func isBase(r rune) bool {
	return r >= 0x80 && unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unseen(r)
}

// inline returns text as visible does, on one line.
func inline(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r + 0x2400
		}
		return r
	}, visible(s))
}
