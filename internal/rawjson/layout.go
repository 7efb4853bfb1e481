package rawjson

import (
	"bytes"
	"strings"
)

// AppendCompact appends src without the white space between its tokens. The
// tokens are untouched. src should have passed [Check]; of other input the
// result means nothing.
func AppendCompact(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"':
			end := stringEnd(src, i)
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

// AppendIndent appends src in the layout of JSON.stringify(x, null, indent):
// one element a line, `"name": value`, `[]` and `{}` for what is empty, and no
// newline at the end. An empty indent gives what [AppendCompact] gives. The
// tokens are untouched. src should have passed [Check]; of other input the
// result means nothing.
func AppendIndent(dst, src []byte, indent string) []byte {
	return AppendIndentAt(dst, src, indent, 0)
}

// AppendIndentAt does the same for a value that stands inside of so many others.
func AppendIndentAt(dst, src []byte, indent string, depth int) []byte {
	if indent == "" {
		return AppendCompact(dst, src)
	}
	line := "\n" + strings.Repeat(indent, min(max(depth, 0)+8, MaxDepth)) // grown when something is deeper
	newline := func(dst []byte, depth int) []byte {
		n := 1 + min(max(depth, 0), MaxDepth)*len(indent)
		if n > len(line) {
			line = "\n" + strings.Repeat(indent, min(2*depth, MaxDepth))
		}
		return append(dst, line[:n]...)
	}
	for i := space(src, 0); i < len(src); i = space(src, i) {
		switch c := src[i]; c {
		case '"':
			end := stringEnd(src, i)
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
			dst = newline(dst, depth)
		case '}', ']':
			depth--
			dst = append(newline(dst, depth), c)
			i++
		case ',':
			dst = newline(append(dst, c), depth)
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

// Equal reports whether a and b are the same tokens: equal once both are
// compacted. Numbers and escapes must be spelled alike, names must have the
// same order. a and b should have passed [Check].
func Equal(a, b []byte) bool {
	i, j := space(a, 0), space(b, 0)
	for i < len(a) && j < len(b) {
		if a[i] != b[j] {
			return false
		}
		if a[i] == '"' {
			m, n := stringEnd(a, i), stringEnd(b, j)
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

// stringEnd is scanString for input that is known to be good, and stays inside
// of any other.
func stringEnd(b []byte, i int) int {
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
