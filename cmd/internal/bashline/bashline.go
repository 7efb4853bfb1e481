// Package bashline splits the beginning of a command line as bash does, and quotes words so that bash reads them
// unchanged. It neither expands nor runs anything: $X stays $X.
package bashline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is a command line up to the cursor.
type Line struct {
	Words []string // complete words, beginning with the name of the program
	Word  string   // word at the cursor, "" before its first character
	Quote byte     // open quote at the cursor: ' or "; 0 if none
	Head  int      // bytes of Word before the part that readline replaces
}

// Parse parses a line up to the cursor. breaks are the characters after which readline replaces text, COMP_WORDBREAKS.
// Of several commands only the last one counts. Parse returns false for syntax that it does not support: substitutions
// and redirections.
func Parse(text, breaks string) (Line, bool) {
	p := parser{breaks: breaks}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case p.Quote == '\'':
			p.quoted(c)
		case c == '\\':
			if i++; i == len(text) {
				return Line{}, false // an incomplete escape
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
	begun  bool // a word has begun, which may be ''
}

func (p *parser) add(c byte) { p.word, p.begun = append(p.word, c), true }

func (p *parser) end() {
	if p.begun {
		p.Words = append(p.Words, string(p.word))
	}
	p.word, p.begun, p.Head = nil, false, 0
}

// quoted adds a character within quotes, or closes them.
func (p *parser) quoted(c byte) {
	if c == p.Quote {
		p.Quote, p.Head = 0, len(p.word)
		return
	}
	p.add(c)
}

// escaped adds a character after a backslash. In double quotes, most characters keep the backslash.
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

// Spell returns the text to insert in place of the part that readline replaces, so that the word at the cursor becomes
// the given word. It returns false if the word does not begin with the word at the cursor, or cannot be quoted there.
// An open quote stays open, because readline closes it.
func (l Line) Spell(word string) (string, bool) {
	if !strings.HasPrefix(word, l.Word) || !printable(word) {
		return "", false
	}
	rest := word[l.Head:]
	switch l.Quote {
	case '\'':
		return strings.ReplaceAll(rest, "'", `'\''`), true
	case '"':
		// In double quotes, a backslash before ! stays in the word; without it, ! may expand the history.
		return strings.NewReplacer("$", `\$`, "`", "\\`", `"`, `\"`, `\`, `\\`).Replace(rest), !strings.Contains(rest, "!")
	}
	return escape(rest), true
}

// printable reports whether a word has no control characters. A backslash does not make them safe.
func printable(word string) bool {
	return utf8.ValidString(word) && !strings.ContainsFunc(word, unicode.IsControl)
}

// escape puts a backslash before each character that may be special to bash.
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
