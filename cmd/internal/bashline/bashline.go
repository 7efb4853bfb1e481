// Package bashline reads the beginning of a command line as bash splits it, and spells
// words so that bash takes them as they are. It expands nothing and runs nothing: what
// bash would put in the place of $X stays $X.
package bashline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is a command line up to the cursor.
type Line struct {
	Words []string // that are whole, the name of the program first
	Word  string   // the one at the cursor, "" if it has not begun
	Quote byte     // that is open at the cursor: ' or ", else 0
	Head  int      // bytes of Word that stand before what readline replaces
}

// Parse reads a line up to the cursor. breaks are the characters at which readline begins
// to replace anew, COMP_WORDBREAKS. Only the last of several commands counts. It is false
// for what it cannot read: a substitution, a redirection.
func Parse(text, breaks string) (Line, bool) {
	p := parser{breaks: breaks}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case p.Quote == '\'':
			p.quoted(c)
		case c == '\\':
			if i++; i == len(text) {
				return Line{}, false // half a character
			}
			p.escaped(text[i])
		case c == '`', c == '$' && i+1 < len(text) && strings.IndexByte("('\"", text[i+1]) >= 0 && (p.Quote == 0 || text[i+1] == '('):
			return Line{}, false
		case p.Quote == '"':
			p.quoted(c)
		case strings.IndexByte("<>()", c) >= 0:
			return Line{}, false
		default:
			p.bare(c)
		}
	}
	p.Word = string(p.word)
	return p.Line, true
}

type parser struct {
	Line
	breaks string
	word   []byte
	begun  bool // there is a word, which may be ''
}

func (p *parser) add(c byte) { p.word, p.begun = append(p.word, c), true }

func (p *parser) end() {
	if p.begun {
		p.Words = append(p.Words, string(p.word))
	}
	p.word, p.begun, p.Head = nil, false, 0
}

// quoted takes a character between quotes, or the one that closes them.
func (p *parser) quoted(c byte) {
	if c == p.Quote {
		p.Quote, p.Head = 0, len(p.word)
		return
	}
	p.add(c)
}

// escaped takes a character behind a backslash, which double quotes keep before most.
func (p *parser) escaped(c byte) {
	if p.Quote == '"' && strings.IndexByte("$`\"\\", c) < 0 {
		p.add('\\')
	}
	p.add(c)
}

func (p *parser) bare(c byte) {
	switch c {
	case ' ', '\t', '\n':
		p.end()
	case ';', '|', '&':
		p.end()
		p.Words = nil
	case '\'', '"':
		p.Quote, p.begun, p.Head = c, true, len(p.word)
	default:
		if p.add(c); strings.IndexByte(p.breaks, c) >= 0 {
			p.Head = len(p.word)
		}
	}
}

// Spell returns what is to stand in the place of what readline replaces, so that the word
// at the cursor becomes a given one. It is false for a word that does not begin as the one
// at the cursor, or that cannot be spelled there. A quote that is open is not closed:
// readline does that.
func (l Line) Spell(word string) (string, bool) {
	if !strings.HasPrefix(word, l.Word) || !printable(word) {
		return "", false
	}
	rest := word[l.Head:]
	switch l.Quote {
	case '\'':
		return strings.ReplaceAll(rest, "'", `'\''`), true
	case '"':
		// Behind a backslash, ! stays with it there; without, it may bring back an old command.
		return strings.NewReplacer("$", `\$`, "`", "\\`", `"`, `\"`, `\`, `\\`).Replace(rest), !strings.Contains(rest, "!")
	}
	return escape(rest), true
}

// printable says whether a word has no control characters, which a backslash does not
// make safe.
func printable(word string) bool {
	return utf8.ValidString(word) && !strings.ContainsFunc(word, unicode.IsControl)
}

// escape puts a backslash before each character that may mean something to bash.
func escape(word string) string {
	var b strings.Builder
	for i := range len(word) {
		if c := word[i]; c < 0x80 && !isPlain(c) {
			b.WriteByte('\\')
		}
		b.WriteByte(word[i])
	}
	return b.String()
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./:=@%+,", c) >= 0
}
