package tallydir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

const (
	bom         = "\xef\xbb\xbf"
	writerStyle = "  " // indent of the original writer's JSON files
)

// spellJSON writes a JSON file: the value as it stands, or rendered with an
// indent.
func spellJSON(raw []byte, f events.FileFormat) []byte {
	var b []byte
	if f.BOM {
		b = append(b, bom...)
	}
	if f.Indent != "" {
		b = rawjson.AppendIndent(b, raw, f.Indent)
	} else {
		b = append(b, raw...)
	}
	return append(b, ending(f)...)
}

// ending is what stands behind the last value of a file.
func ending(f events.FileFormat) string {
	switch {
	case !f.FinalNewline:
		return ""
	case f.Separator != "":
		return f.Separator
	}
	return "\n"
}

// jsonValue is what a JSON file was found to be.
type jsonValue struct {
	raw    []byte            // the value, without white space around it
	format events.FileFormat // by which it is spelled
	exact  bool              // it is the whole file
}

// readJSON takes a JSON file apart. inside is how many containers the value will
// stand in.
func readJSON(data []byte, inside int) (jsonValue, error) {
	body, mark := bytes.CutPrefix(data, []byte(bom))
	v := jsonValue{raw: bytes.Trim(body, " \t\r\n"), format: events.FileFormat{BOM: mark}}
	if err := rawjson.Check(body); err != nil { // of all of it, so that offsets count from its beginning
		return jsonValue{}, err
	}
	if err := checkValue(v.raw, inside); err != nil {
		return jsonValue{}, err
	}
	if rest := body[bytes.Index(body, v.raw)+len(v.raw):]; string(rest) == "\r\n" {
		v.format.Separator, v.format.FinalNewline = "\r\n", true
	} else if string(rest) == "\n" {
		v.format.FinalNewline = true
	}
	v.exact = bytes.Equal(spellJSON(v.raw, v.format), data)
	return v, nil
}

// checkValue says why a value cannot stand inside of so many containers.
func checkValue(raw []byte, inside int) error {
	if err := rawjson.Check(raw); err != nil {
		return err
	}
	if string(raw) == "null" {
		return &rawjson.FieldError{Reason: "null says nothing"}
	}
	if nesting(raw) > rawjson.MaxDepth-inside {
		return &rawjson.FieldError{Reason: "nested too deep"}
	}
	return nil
}

// nesting gives the depth of a value that is known to be JSON.
func nesting(raw []byte) int {
	if n := bytes.Count(raw, []byte("{")) + bytes.Count(raw, []byte("[")); n < rawjson.MaxDepth-10 {
		return n // never deeper than that
	}
	depth, deepest, text := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// linesWriter writes a file of lines.
type linesWriter struct {
	w      io.Writer
	format events.FileFormat
	n      int
}

func (l *linesWriter) separator() string {
	if l.format.Separator != "" {
		return l.format.Separator
	}
	return "\n"
}

// turn writes the next line. A value that has line ends between its tokens is
// compacted, as otherwise it would be several lines.
func (l *linesWriter) turn(raw []byte, compact bool) error {
	if compact || bytes.ContainsAny(raw, "\n\r") {
		raw = rawjson.AppendCompact(nil, raw)
	}
	head := ""
	switch {
	case l.n > 0:
		head = l.separator()
	case l.format.BOM:
		head = bom
	}
	l.n++
	if head != "" {
		if _, err := io.WriteString(l.w, head); err != nil {
			return err
		}
	}
	_, err := l.w.Write(raw)
	return err
}

// end writes what stands behind the last line.
func (l *linesWriter) end() error {
	tail := ending(l.format)
	if l.n == 0 {
		tail = ""
		if l.format.BOM {
			tail = bom
		}
	}
	_, err := io.WriteString(l.w, tail)
	return err
}

// arrayWriter writes a JSON array element by element, in the layout of
// JSON.stringify(array, null, indent) if there is an indent.
type arrayWriter struct {
	w      io.Writer
	format events.FileFormat
	n      int
	buf    []byte
}

func (a *arrayWriter) element(raw []byte) error {
	b := a.buf[:0]
	switch {
	case a.n > 0:
		b = append(b, ',')
	case a.format.BOM:
		b = append(b, bom+"["...)
	default:
		b = append(b, '[')
	}
	a.n++
	if a.format.Indent == "" {
		b = append(b, raw...)
	} else {
		newline := []byte("\n" + a.format.Indent)
		b = append(b, newline...)
		element := rawjson.AppendIndent(nil, raw, a.format.Indent) // no string holds a line end
		b = append(b, bytes.ReplaceAll(element, []byte("\n"), newline)...)
	}
	a.buf = b
	_, err := a.w.Write(b)
	return err
}

func (a *arrayWriter) end() error {
	text := ""
	switch {
	case a.n == 0 && a.format.BOM:
		text = bom + "[]"
	case a.n == 0:
		text = "[]"
	case a.format.Indent != "":
		text = "\n]"
	default:
		text = "]"
	}
	_, err := io.WriteString(a.w, text+ending(a.format))
	return err
}

// hexSum gives a hash as it stands in formats.
func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// sumOf hashes bytes.
func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// nothing is the hash of a file that the state does not render.
var nothing = sumOf(nil)
