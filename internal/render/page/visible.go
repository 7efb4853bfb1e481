package page

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/render/plain"
)

// visible returns text without hidden characters and without changes of direction. Control characters are replaced as
// elsewhere in tally. Other invisible characters are shown by number, as [U+200B]. Joiners in scripts and emoji stay if
// they do nothing else.
func visible(s string) string {
	var b strings.Builder
	var seen, last rune // the last visible character, and the last one of all
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

// unseen reports whether a character is invisible, or only affects others. U+202E, which reverses the text after it, is
// one.
func unseen(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// selects reports whether a character selects the text or emoji form of the one before. The other 256 selectors could
// encode hidden text.
func selects(r rune) bool { return r == 0xfe0e || r == 0xfe0f }

// joins reports whether a joiner, with which rest begins, joins the character before it to a visible one after it.
func joins(before, r rune, rest string) bool {
	after, _ := utf8.DecodeRuneInString(rest[utf8.RuneLen(r):])
	return plain.Joins(before, r, after) && isBase(after)
}

// isBase reports whether a character is visible and belongs to a script or to symbols in which joiners have a function.
// In ASCII they have none.
func isBase(r rune) bool {
	return r >= 0x80 && unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unseen(r)
}

// inline returns text like visible, on one line.
func inline(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r + 0x2400
		}
		return r
	}, visible(s))
}
