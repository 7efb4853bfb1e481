package redact

import (
	"sort"
	"unicode/utf16"
	"unicode/utf8"
)

// A view is a text as it reads after unescaping, and where each of its bytes
// came from.
type view struct {
	text   []byte
	turns  []turn
	parent *view // what it was before the last unescaping; nil: the text is as it stands
}

// After a turn, the text and its parent's go on byte for byte.
type turn struct{ text, parent int }

func plainView(text []byte) view { return view{text: text} }

// raw returns where a byte of the text begins in what it came from; the end of
// the text is that of its origin.
func (v *view) raw(i int) int {
	for ; v.parent != nil; v = v.parent {
		n := sort.Search(len(v.turns), func(n int) bool { return v.turns[n].text > i }) - 1
		i += v.turns[n].parent - v.turns[n].text
	}
	return i
}

// unescaped resolves the escapes of JSON once. What looks like one and is none
// stays, and a lone surrogate becomes U+FFFD.
func (v view) unescaped() view {
	out := view{text: make([]byte, 0, len(v.text)), turns: []turn{{0, 0}}, parent: &v}
	s := v.text
	for i := 0; i < len(s); {
		from := i
		for i < len(s) && s[i] != '\\' {
			i++
		}
		out.text = append(out.text, s[from:i]...)
		if i == len(s) {
			break
		}
		r, size := escape(s[i:])
		if size == 0 {
			out.text = append(out.text, '\\')
			i++
			continue
		}
		out.text = utf8.AppendRune(out.text, r)
		i += size
		out.turns = append(out.turns, turn{len(out.text), i})
	}
	return out
}

// escape reads the escape that s begins with. size is 0 if it is none.
func escape(s []byte) (r rune, size int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return unicodeEscape(s)
	}
	return 0, 0
}

func unicodeEscape(s []byte) (r rune, size int) {
	r, ok := hex4(s)
	if !ok {
		return 0, 0
	}
	if low, ok := hex4(s[6:]); ok && utf16.IsSurrogate(r) {
		if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
			return both, 12
		}
	}
	return r, 6 // AppendRune makes U+FFFD of a surrogate
}

// hex4 reads \uXXXX.
func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range s[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
