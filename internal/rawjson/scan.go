package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of objects and arrays. Deeper input is refused.
const MaxDepth = 1000

var tooDeep = "nested deeper than " + strconv.Itoa(MaxDepth)

// Check returns a *SyntaxError if b is not exactly one JSON value with optional white space around it. The grammar is
// RFC 8259's; in addition b must be valid UTF-8, have no byte order mark and be nested at most MaxDepth deep. Numbers
// of any size, duplicate names and escaped lone surrogates are accepted.
func Check(b []byte) error { return checkAt(b, 0) }

// checkAt is Check for a value inside depth containers.
func checkAt(b []byte, depth int) error {
	i, err := start(b)
	if err == nil {
		i, err = scanValue(b, i, depth)
	}
	if err == nil {
		err = finish(b, i)
	}
	return err
}

var mark = []byte("\xef\xbb\xbf")

func start(b []byte) (int, error) {
	if bytes.HasPrefix(b, mark) {
		return 0, bad(0, "byte order mark")
	}
	return space(b, 0), nil
}

func finish(b []byte, i int) error {
	if i = space(b, i); i < len(b) {
		return bad(i, "more after the value")
	}
	return nil
}

func space(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && blank(b[i]) {
		i++
	}
	return i
}

func blank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// scanValue returns the end of the value that begins at i, inside depth
// containers. It does not recurse.
func scanValue(b []byte, i, depth int) (int, error) {
	if i < len(b) && (b[i] == '{' || b[i] == '[') {
		return scanContainer(b, i, depth)
	}
	return scanScalar(b, i)
}

func scanScalar(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, bad(len(b), "unexpected end")
	}
	switch b[i] {
	case '"':
		end, _, err := scanString(b, i)
		return end, err
	case 't':
		return scanLiteral(b, i, "true")
	case 'f':
		return scanLiteral(b, i, "false")
	case 'n':
		return scanLiteral(b, i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		end, _, err := scanNumber(b, i)
		return end, err
	}
	return 0, bad(i, "want a value")
}

// scanContainer keeps only one bit for each open container: whether it is an object. It handles the common cases
// itself, plain strings without white space, and calls the general functions for the rest and for errors.
func scanContainer(b []byte, i, depth int) (int, error) {
	var objects [MaxDepth/64 + 1]uint64
	outside := depth
	var err error
	for {
		if i >= len(b) {
			return 0, bad(len(b), "unexpected end")
		}
		switch c := b[i]; c {
		case '{', '[':
			if depth++; depth > MaxDepth {
				return 0, bad(i, tooDeep)
			}
			object := c == '{'
			if object {
				objects[depth/64] |= 1 << (depth % 64)
			} else {
				objects[depth/64] &^= 1 << (depth % 64)
			}
			i = space(b, i+1)
			if i >= len(b) || b[i] != c+2 { // '{'+2 is '}', '['+2 is ']'
				if object {
					if i, err = passName(b, i); err != nil {
						return 0, err
					}
				}
				continue
			}
			i++
			depth--
		case '"':
			if end := plainString(b, i); end > 0 {
				i = end
			} else if i, _, err = scanString(b, i); err != nil {
				return 0, err
			}
		default:
			if i, err = scanScalar(b, i); err != nil {
				return 0, err
			}
		}
		for more := false; !more; { // after a value: leave the containers that end here
			if depth == outside {
				return i, nil
			}
			object := objects[depth/64]>>(depth%64)&1 != 0
			if i+1 < len(b) && b[i] == ',' && b[i+1] > ' ' {
				i, more = i+1, true
			} else if i, more, err = scanNext(b, i, object); err != nil {
				return 0, err
			}
			if !more {
				depth--
			} else if object {
				if i, err = passName(b, i); err != nil {
					return 0, err
				}
			}
		}
	}
}

// passName is a faster scanName for common names.
func passName(b []byte, i int) (int, error) {
	if i < len(b) && b[i] == '"' {
		if end := plainString(b, i); end > 0 && end+1 < len(b) && b[end] == ':' {
			switch {
			case b[end+1] > ' ':
				return end + 1, nil
			case b[end+1] == ' ' && end+2 < len(b) && b[end+2] > ' ':
				return end + 2, nil
			}
		}
	}
	return scanName(b, i)
}

// plainString returns the end of the string whose opening quote is at i, if it has only plain bytes and does not end
// near the end of b; else 0.
func plainString(b []byte, i int) int {
	for i++; i+8 <= len(b); i += 8 {
		if hit := special(binary.LittleEndian.Uint64(b[i:])); hit != 0 {
			i += bits.TrailingZeros64(hit) / 8
			if b[i] == '"' {
				return i + 1
			}
			return 0
		}
	}
	return 0
}

// scanNext reads the token after an element. For a comma, more is true and next is the index of the next element; else
// it is the end of the container.
func scanNext(b []byte, i int, object bool) (next int, more bool, err error) {
	i = space(b, i)
	closer, reason := byte(']'), "want ',' or ']'"
	if object {
		closer, reason = '}', "want ',' or '}'"
	}
	switch {
	case i >= len(b):
		return 0, false, bad(i, "unexpected end")
	case b[i] == ',':
		return space(b, i+1), true, nil
	case b[i] == closer:
		return i + 1, false, nil
	}
	return 0, false, bad(i, reason)
}

// scanName reads a name and its colon and returns the index of the value.
func scanName(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, bad(i, "unexpected end")
	}
	if b[i] != '"' {
		return 0, bad(i, "want a name")
	}
	i, _, err := scanString(b, i)
	if err != nil {
		return 0, err
	}
	return scanColon(b, i)
}

func scanColon(b []byte, i int) (int, error) {
	if i = space(b, i); i >= len(b) {
		return 0, bad(i, "unexpected end")
	}
	if b[i] != ':' {
		return 0, bad(i, "want ':'")
	}
	return space(b, i+1), nil
}

func scanLiteral(b []byte, i int, word string) (int, error) {
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end, nil
	}
	return 0, bad(i, "want a value")
}

// scanNumber returns the end of a number, and whether it has neither fraction nor exponent.
func scanNumber(b []byte, i int) (end int, integer bool, err error) {
	at := i
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, err = scanDigits(b, i, at); err != nil {
		return 0, false, err
	}
	integer = true
	if i < len(b) && b[i] == '.' {
		integer = false
		if i, err = scanDigits(b, i+1, at); err != nil {
			return 0, false, err
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		integer = false
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i, err = scanDigits(b, i, at); err != nil {
			return 0, false, err
		}
	}
	return i, integer, nil
}

func scanDigits(b []byte, i, at int) (int, error) {
	n := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	if i == n {
		return 0, bad(at, "invalid number")
	}
	return i, nil
}

// scanString returns the end of the string whose opening quote is at i, and
// whether it has escapes.
func scanString(b []byte, i int) (end int, escaped bool, err error) {
	for i = plain(b, i+1); i < len(b); i = plain(b, i) {
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, nil
		case c == '\\':
			escaped = true
			if i, err = scanEscape(b, i); err != nil {
				return 0, false, err
			}
		case c < ' ':
			return 0, false, bad(i, "control character in a string")
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(b[i:])
				if r == utf8.RuneError && n == 1 {
					return 0, false, bad(i, "invalid UTF-8")
				}
				i += n
			}
		}
	}
	return 0, false, bad(len(b), "unterminated string")
}

func scanEscape(b []byte, i int) (int, error) {
	if i+1 >= len(b) {
		return 0, bad(len(b), "unterminated string")
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		if _, ok := hex4(b, i+2); ok {
			return i + 6, nil
		}
	}
	return 0, bad(i, "invalid escape")
}

// special sets the top bit of the first byte of a word that is not plain; a borrow can only disturb the bytes above it.
func special(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	return (w | (w - ones*' ') | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) & tops
}

// plain returns the index, from i on, of the first byte of a string that is not plain: a quote, a backslash, a control
// or a byte of a longer rune. It reads eight bytes at a time.
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		if hit := special(binary.LittleEndian.Uint64(b[i:])); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}
