package frontmatter

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bom is the byte order mark that some editors write before the first line.
const bom = "\ufeff"

// fence is the line before and after the block.
const fence = "---"

// View is a document with the positions of its front matter. It keeps the original bytes.
type View struct {
	text   []byte
	fields []Field // in the order of the file
	eol    string  // of the first line, or "\n"
	start  int     // after a byte order mark
	close  int     // start of the block's last line
	body   int     // the offset after it
	has    bool
}

// Field is a line of the block that has a colon.
type Field struct {
	Key   string // without surrounding white space
	Value string // as the original reads it: without surrounding white space and quotes
	Raw   string // as written, without surrounding white space

	from, to int // of Raw in the text
}

// Read reads a document. It never fails: a document without front matter is all body.
func Read(text []byte) View {
	v := View{text: text, eol: "\n"}
	if bytes.HasPrefix(text, []byte(bom)) {
		v.start = len(bom)
	}
	v.body = v.start
	end, next := lineAt(text, v.start)
	if next > end {
		v.eol = string(text[end:next])
	}
	if string(text[v.start:end]) != fence || next == end {
		return v
	}
	for at := next; at < len(text); at = next {
		end, next = lineAt(text, at)
		if string(text[at:end]) == fence {
			v.has, v.close, v.body = true, at, next
			return v
		}
		if colon := bytes.IndexByte(text[at:end], ':'); colon >= 0 {
			v.fields = append(v.fields, fieldAt(text, at, at+colon, end))
		}
	}
	v.fields = nil // the block has no closing line
	return v
}

// lineAt returns the end of the line that begins at an offset, and the start of the next line.
func lineAt(text []byte, at int) (end, next int) {
	n := bytes.IndexByte(text[at:], '\n')
	if n < 0 {
		return len(text), len(text)
	}
	end, next = at+n, at+n+1
	if end > at && text[end-1] == '\r' {
		end--
	}
	return end, next
}

func fieldAt(text []byte, from, colon, end int) Field {
	raw := bytes.TrimFunc(text[colon+1:end], isBlank)
	f := Field{Key: string(bytes.TrimFunc(text[from:colon], isBlank)), Raw: string(raw), from: colon + 1, to: colon + 1}
	if len(raw) > 0 {
		f.from = colon + 1 + len(text[colon+1:end]) - len(bytes.TrimLeftFunc(text[colon+1:end], isBlank))
		f.to = f.from + len(raw)
	}
	f.Value = unquote(f.Raw)
	return f
}

// isBlank reports whether a character is white space inside a line.
func isBlank(r rune) bool { return r == '\t' || unicode.Is(unicode.Zs, r) }

// unquote returns a value without its quotes.
func unquote(raw string) string {
	if !strings.HasPrefix(raw, `"`) || !strings.HasSuffix(raw, `"`) {
		return raw
	}
	if len(raw) == 1 {
		return ""
	}
	return strings.ReplaceAll(raw[1:len(raw)-1], `\"`, `"`)
}

// Has reports whether the document has front matter.
func (v View) Has() bool { return v.has }

// Fields lists the lines of the block that have a colon, in the order of the file. If several have the same key, the
// last one counts.
func (v View) Fields() []Field { return v.fields }

// Field returns the line of a key: the last one with it.
func (v View) Field(key string) (Field, bool) {
	for _, f := range slices.Backward(v.fields) {
		if f.Key == key {
			return f, true
		}
	}
	return Field{}, false
}

// Get returns the value of a key.
func (v View) Get(key string) (string, bool) {
	f, ok := v.Field(key)
	return f.Value, ok
}

// Body returns the offset of the text after the block, or after a byte order mark.
func (v View) Body() int { return v.body }

// EOL returns the document's line break: "\n", or "\r\n" if the first line ends so.
func (v View) EOL() string { return v.eol }

// Set returns the document with a key set to a value. Nothing else changes. An existing key keeps its position, a new
// one is last, and an equal value keeps its spelling. A document without front matter gets some. If the key or value
// could not be read back, the error is an *Error.
func (v View) Set(key, value string) ([]byte, error) {
	if err := check(key, value); err != nil {
		return nil, err
	}
	return v.set(key, value, quote(value)), nil
}

// SetRaw is Set with a value in its spelling, as in [Field.Raw].
func (v View) SetRaw(key, raw string) ([]byte, error) {
	if err := check(key, raw); err != nil {
		return nil, err
	}
	return v.set(key, unquote(raw), raw), nil
}

func (v View) set(key, value, raw string) []byte {
	f, ok := v.Field(key)
	switch {
	case ok && f.Value == value:
		return v.text
	case ok && f.from == f.to && (f.from == 0 || v.text[f.from-1] == ':'):
		return splice(v.text, f.from, f.to, " "+raw)
	case ok:
		return splice(v.text, f.from, f.to, raw)
	case v.has:
		return splice(v.text, v.close, v.close, key+": "+raw+v.eol)
	}
	return splice(v.text, v.start, v.start, fence+v.eol+key+": "+raw+v.eol+fence+v.eol+v.eol)
}

func splice(text []byte, from, to int, with string) []byte {
	return slices.Concat(text[:from], []byte(with), text[to:])
}

// quote spells a value. Like the original, it quotes values with a colon or a hash. It also quotes values that would be
// read differently without quotes.
func quote(value string) string {
	if strings.ContainsAny(value, ":#") || unquote(value) != value || strings.TrimFunc(value, isBlank) != value {
		return `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
	}
	return value
}

// An Error reports why a key or its value cannot be written into front matter.
type Error struct {
	Key    string
	Reason string
}

func (e *Error) Error() string {
	return "front matter, key " + strings.TrimSpace(cut(e.Key)) + ": " + e.Reason
}

// cut bounds the length of a key in an error.
func cut(key string) string {
	const maxKey = 64
	if len(key) <= maxKey {
		return `"` + key + `"`
	}
	for n := maxKey; ; n-- {
		if n == 0 || utf8.RuneStart(key[n]) {
			return `"` + key[:n] + `..."`
		}
	}
}

// check refuses a key or value that could not be read back.
func check(key, value string) error {
	switch {
	case strings.TrimFunc(key, isBlank) != key || key == "":
		return &Error{key, "a key is not empty, and has no white space around it"}
	case strings.ContainsAny(key, ":\n\r"):
		return &Error{key, "a key has neither a colon nor a line break"}
	case strings.ContainsAny(value, "\n\r"):
		return &Error{key, "a value has no line break"}
	}
	return nil
}
