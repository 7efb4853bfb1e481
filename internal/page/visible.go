package page

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/tallylog/tally/internal/plain"
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
		case joins(r) && (last == seen || selects(last)) && isBase(seen) && isBase(first(s[i+len(string(r)):])):
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

// joins reports whether a character joins, or keeps apart, the two beside it.
func joins(r rune) bool { return r == 0x200c || r == 0x200d }

// isBase reports whether a character is seen and of a script, or among symbols, in which
// unseen ones have work to do. In ASCII they have none.
func isBase(r rune) bool {
	return r >= 0x80 && unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unseen(r)
}

// first returns the first character of a text, 0 of none.
func first(s string) rune {
	for _, r := range s {
		return r
	}
	return 0
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
