package catalog

import (
	"strings"
	"unicode"

	"github.com/tallylog/tally/events"
)

// term is a word or phrase of what somebody searches for.
type term struct {
	text   string // as it was typed, signs and all
	quoted bool   // and so never a sign of the language
	prefix bool   // the last word of it is the beginning of a word
	not    bool   // a turn must not have it
}

// matchOf turns what somebody typed into what FTS5 understands. Each term goes there as a
// string between quotes, so whatever signs are in it are those of a text and never of a
// query. All terms must be there, but a OR b is one of the two.
func matchOf(text string) (string, error) {
	terms := termsOf(text)
	var must, never []string
	for i := 0; i < len(terms); i++ {
		if terms[i].not {
			never = append(never, terms[i].fts5())
			continue
		}
		either := []string{terms[i].fts5()}
		for ; isOr(terms, i+1); i += 2 {
			either = append(either, terms[i+2].fts5())
		}
		must = append(must, "("+strings.Join(either, " OR ")+")")
	}
	if len(must) == 0 {
		reason := "there is no word to search for"
		if len(never) > 0 {
			reason += ", only what a turn must not have"
		}
		return "", &events.InvalidError{Field: "text", Reason: reason}
	}
	match := strings.Join(must, " AND ")
	if len(never) > 0 {
		match = "(" + match + ") NOT (" + strings.Join(never, " OR ") + ")"
	}
	return match, nil
}

// isOr reports whether the term at i stands between two of which one must be there. At an
// end, or beside what must not be there, it is the word "or".
func isOr(terms []term, i int) bool {
	return i > 0 && i+1 < len(terms) && terms[i].isOr() && !terms[i-1].not && !terms[i+1].not
}

func (t term) isOr() bool { return t.text == "OR" && !t.quoted && !t.prefix && !t.not }

// fts5 spells a term as a string of FTS5. Nothing but a quote has a meaning in one.
func (t term) fts5() string {
	text := `"` + strings.NewReplacer(`"`, " ", "\x00", " ").Replace(spread(strings.ToValidUTF8(t.text, " "))) + `"`
	if t.prefix {
		text += "*"
	}
	return text
}

// termsOf splits what somebody typed: at spaces, but between quotes.
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

// nextTerm takes a term from the beginning of a text that is not empty and does not begin
// with a space. A quote that is not closed goes to the end.
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

// hasWord reports whether a text has a word to search for. FTS5 leaves out terms that have
// none, and where nothing else is left it would take what must not be there for what must.
func hasWord(text string) bool { return strings.ContainsFunc(text, isLetter) }

// isLetter reports whether a character is a part of a word for FTS5's tokenizer. Its tables are
// of an older Unicode: what was not yet a letter there counts for nothing here.
func isLetter(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.Co) && !unicode.Is(lateLetters, r)
}

// lateLetters were marks before they were letters: New Tai Lue vowels, and Vedic signs.
var lateLetters = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x19b0, Hi: 0x19c9, Stride: 1}, {Lo: 0x1cf2, Hi: 0x1cf3, Stride: 1}}}

// apart stands between letters that are words of their own. It has no width, and for
// FTS5's tokenizer it ends a word.
const apart = '\u200b'

// spread makes each letter of a script that is written without spaces a word of its own,
// in what is stored as in what is searched for. So any part of a sentence is found there: as
// letters one after the other.
func spread(text string) string {
	if !strings.ContainsFunc(text, isUnspaced) {
		return text
	}
	var b strings.Builder
	b.Grow(2 * len(text))
	alone := false // the letter before
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

// joined takes away what spread put in.
func joined(text string) string { return strings.ReplaceAll(text, string(apart), "") }

// isUnspaced reports whether a letter is of a script that is written without spaces.
func isUnspaced(r rune) bool {
	const long = 'ー' // of both kana, and so of no script
	return r == long || r >= 0x0e00 && unicode.IsLetter(r) &&
		unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}
