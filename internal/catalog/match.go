package catalog

import (
	"strings"
	"unicode"

	"github.com/tallylog/tally/events"
)

// term is a word or phrase of a search text.
type term struct {
	text   string // as typed, with all signs
	quoted bool   // in quotes, so not an operator
	prefix bool   // its last word is a prefix
	not    bool   // turns with it are excluded
}

// matchOf translates a search text into an FTS5 query. Each term becomes a quoted string, so no sign in it is an
// operator of FTS5. All terms are required, but a OR b requires either.
func matchOf(text string) (string, error) {
	terms := termsOf(text)
	var required, never []string
	for i := 0; i < len(terms); i++ {
		if terms[i].not {
			never = append(never, terms[i].fts5())
			continue
		}
		either := []string{terms[i].fts5()}
		for ; isOr(terms, i+1); i += 2 {
			either = append(either, terms[i+2].fts5())
		}
		required = append(required, "("+strings.Join(either, " OR ")+")")
	}
	if len(required) == 0 {
		reason := "there is no word to search for"
		if len(never) > 0 {
			reason += ", only what a turn must not have"
		}
		return "", &events.InvalidError{Field: "text", Reason: reason}
	}
	match := strings.Join(required, " AND ")
	if len(never) > 0 {
		match = "(" + match + ") NOT (" + strings.Join(never, " OR ") + ")"
	}
	return match, nil
}

// isOr reports whether the term at i is the operator OR between two required terms. At an end, or beside an excluded
// term, it is the word "or".
func isOr(terms []term, i int) bool {
	return i > 0 && i+1 < len(terms) && terms[i].isOr() && !terms[i-1].not && !terms[i+1].not
}

func (t term) isOr() bool { return t.text == "OR" && !t.quoted && !t.prefix && !t.not }

// fts5 returns a term as an FTS5 string. In such a string only a quote has a meaning.
func (t term) fts5() string {
	text := `"` + strings.NewReplacer(`"`, " ", "\x00", " ").Replace(spreadLetters(strings.ToValidUTF8(t.text, " "))) + `"`
	if t.prefix {
		text += "*"
	}
	return text
}

// termsOf splits a search text at spaces outside quotes.
func termsOf(text string) []term {
	var terms []term
	for {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		if text == "" {
			return terms
		}
		var t term
		if t, text = nextTerm(text); hasWord(t.text) {
			terms = append(terms, t)
		}
	}
}

// nextTerm takes the first term of a non-empty text that does not begin with a space. A quote that is not closed
// extends to the end.
func nextTerm(text string) (t term, rest string) {
	if tail, ok := strings.CutPrefix(text, "-"); ok && !strings.HasPrefix(tail, "-") { // --flag is a word
		t.not, text = true, tail
	}
	if tail, ok := strings.CutPrefix(text, `"`); ok {
		t.quoted = true
		t.text, rest, _ = strings.Cut(tail, `"`)
		rest, t.prefix = strings.CutPrefix(rest, "*")
		return t, rest
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r == '"' || unicode.IsSpace(r) })
	if end < 0 {
		end = len(text)
	}
	t.text, t.prefix = strings.CutSuffix(text[:end], "*")
	return t, text[end:]
}

// hasWord reports whether a text contains a word. FTS5 drops terms without words. If only excluded terms remained, it
// would treat them as required.
func hasWord(text string) bool { return strings.ContainsFunc(text, isLetter) }

// isLetter reports whether FTS5's tokenizer treats a character as part of a word. Its tables are from an older Unicode
// version; characters that became letters later do not count.
func isLetter(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.Co) && !unicode.Is(lateLetters, r)
}

// lateLetters were marks before Unicode made them letters: New Tai Lue vowels, and Vedic signs.
var lateLetters = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x19b0, Hi: 0x19c9, Stride: 1}, {Lo: 0x1cf2, Hi: 0x1cf3, Stride: 1}}}

// apart separates letters that are words of their own. It has no width, and FTS5's tokenizer ends a word at it.
const apart = '\u200b'

// spreadLetters makes each letter of a script without spaces a word of its own, in stored texts and in search texts. So
// a search finds any part of a sentence, as consecutive letters.
func spreadLetters(text string) string {
	if !strings.ContainsFunc(text, isUnspaced) {
		return text
	}
	var b strings.Builder
	b.Grow(2 * len(text))
	alone := false // the previous letter
	for i, r := range text {
		unspaced := isUnspaced(r)
		if i > 0 && (unspaced || alone) {
			b.WriteRune(apart)
		}
		b.WriteRune(r)
		alone = unspaced
	}
	return b.String()
}

// joined removes the separators that spread added.
func joined(text string) string { return strings.ReplaceAll(text, string(apart), "") }

// isUnspaced reports whether a letter belongs to a script that is written without spaces.
func isUnspaced(r rune) bool {
	const long = 'ー' // used in both kana, so it has no script
	return r == long || r >= 0x0e00 && unicode.IsLetter(r) &&
		unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}
