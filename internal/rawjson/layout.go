package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
)

// AppendCompact appends src without the white space between its tokens. The tokens are unchanged. src should have
// passed [Check]; for other input the result is undefined.
func AppendCompact(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"':
			end := StringEnd(src, i)
			dst = append(dst, src[i:end]...)
			i = end
		case blank(c):
			i++
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// AppendIndent appends src in the layout of JSON.stringify(x, null, indent): one element a line, `"name": value`, `[]`
// and `{}` for empty values, and no newline at the end. With an empty indent it does the same as [AppendCompact]. The
// tokens are unchanged. src should have passed [Check]; for other input the result is undefined.
func AppendIndent(dst, src []byte, indent string) []byte {
	return AppendIndentAt(dst, src, indent, 0)
}

// AppendIndentAt does the same for a value inside depth containers.
func AppendIndentAt(dst, src []byte, indent string, depth int) []byte {
	if indent == "" {
		return AppendCompact(dst, src)
	}
	line := lines{indent: indent}
	for i := space(src, 0); i < len(src); i = space(src, i) {
		switch c := src[i]; c {
		case '"':
			end := StringEnd(src, i)
			dst = append(dst, src[i:end]...)
			i = end
		case '{', '[':
			dst = append(dst, c)
			i = space(src, i+1)
			if i < len(src) && src[i] == c+2 {
				dst = append(dst, src[i])
				i++
				continue
			}
			depth++
			dst = append(dst, line.of(depth)...)
		case '}', ']':
			depth--
			dst = append(append(dst, line.of(depth)...), c)
			i++
		case ',':
			dst = append(append(dst, c), line.of(depth)...)
			i++
		case ':':
			dst = append(dst, ':', ' ')
			i++
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// CutIndentAt removes the output of [AppendIndentAt] for src from the beginning of b, without building it. If b begins
// otherwise, ok is false and rest is undefined. src should have passed [Check], and the indent must not be empty.
func CutIndentAt(b, src []byte, indent string, depth int) (rest []byte, ok bool) {
	line := lines{indent: indent}
	white := line.of(depth) // before an element
	j := 0
	for i := space(src, 0); i < len(src); i = space(src, i) {
		c := src[i]
		if c == '}' || c == ']' {
			depth--
			white = line.of(depth)
			if !hasAt(b, j, white) {
				return nil, false
			}
			j += len(white)
		}
		if j >= len(b) || b[j] != c {
			return nil, false
		}
		if c == '"' {
			if i, j = sameString(src, i, b, j); i == 0 {
				return nil, false
			}
			continue
		}
		i, j = i+1, j+1
		switch c {
		case '{', '[':
			if i = space(src, i); i < len(src) && src[i] == c+2 {
				if j >= len(b) || b[j] != c+2 {
					return nil, false
				}
				i, j = i+1, j+1
				continue
			}
			depth++
			white = line.of(depth)
			fallthrough
		case ',':
			if !hasAt(b, j, white) {
				return nil, false
			}
			j += len(white)
		case ':':
			if j >= len(b) || b[j] != ' ' {
				return nil, false
			}
			j++
		case '}', ']':
		default: // and the rest of a number
			for i < len(src) && j < len(b) && src[i] == b[j] && '-' <= src[i] && src[i] <= '9' {
				i, j = i+1, j+1
			}
		}
	}
	return b[j:], true
}

func hasAt(b []byte, j int, text string) bool {
	return len(b)-j >= len(text) && string(b[j:j+len(text)]) == text
}

// lines returns the white space before elements.
type lines struct {
	indent  string
	deepest string
}

func (l *lines) of(depth int) string {
	depth = min(max(depth, 0), MaxDepth)
	n := 1 + depth*len(l.indent)
	if n > len(l.deepest) {
		l.deepest = "\n" + strings.Repeat(l.indent, max(2*depth, 8))
	}
	return l.deepest[:n]
}

// sameString returns the ends of two identically spelled strings, which begin at i and at j, or 0 if they differ. It
// compares eight bytes at a time.
func sameString(a []byte, i int, b []byte, j int) (int, int) {
	begun := i
	for i, j = i+1, j+1; i+9 <= len(a) && j+9 <= len(b); {
		w := binary.LittleEndian.Uint64(a[i:])
		differs, hit := w^binary.LittleEndian.Uint64(b[j:]), ends(w)
		if hit == 0 {
			if differs != 0 {
				return 0, 0
			}
			i, j = i+8, j+8
			continue
		}
		n := bits.TrailingZeros64(hit) / 8
		if differs != 0 && bits.TrailingZeros64(differs)/8 <= n {
			return 0, 0
		}
		if a[i+n] == '"' {
			return i + n + 1, j + n + 1
		}
		if a[i+n+1] != b[j+n+1] { // the escaped byte
			return 0, 0
		}
		i, j = i+n+2, j+n+2
	}
	end := StringEnd(a, begun)
	n := end - i
	if n < 0 || len(b)-j < n || !bytes.Equal(a[i:end], b[j:j+n]) {
		return 0, 0
	}
	return end, j + n
}

// ends sets the top bit of the first byte of a word that is a quote or a backslash; a borrow can only disturb the bytes
// above it.
func ends(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^ones*'"', w^ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash) & tops
}

// Equal reports whether a and b have the same tokens: they are equal once both are compacted. Numbers and escapes must
// be spelled alike, names must have the same order. a and b should have passed [Check].
func Equal(a, b []byte) bool {
	i, j := space(a, 0), space(b, 0)
	for i < len(a) && j < len(b) {
		if a[i] != b[j] {
			return false
		}
		if a[i] == '"' {
			m, n := StringEnd(a, i), StringEnd(b, j)
			if !bytes.Equal(a[i:m], b[j:n]) {
				return false
			}
			i, j = m, n
		} else {
			i, j = i+1, j+1
		}
		i, j = space(a, i), space(b, j)
	}
	return i == len(a) && j == len(b)
}

// StringEnd returns the index behind the string that begins at i. b should have passed [Check]; for other input the
// result is still within b.
func StringEnd(b []byte, i int) int {
	for i = plain(b, i+1); i < len(b); i = plain(b, i) {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i = min(i+2, len(b))
		default:
			i++
		}
	}
	return len(b)
}
