package sessiondir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

const BOM = "\xef\xbb\xbf"

// SpellJSON returns a JSON file: the value as it is, or rendered with an indent.
func SpellJSON(raw []byte, f events.FileFormat) []byte {
	b := make([]byte, 0, len(raw)+len(raw)/2) // an indent seldom adds more than half
	if f.BOM {
		b = append(b, BOM...)
	}
	if f.Indent != "" {
		b = rawjson.AppendIndent(b, raw, f.Indent)
	} else {
		b = append(b, raw...)
	}
	return append(b, Ending(f)...)
}

// WriteJSON writes the bytes that SpellJSON returns. It does not copy a value without indent.
func WriteJSON(w io.Writer, raw []byte, f events.FileFormat) error {
	if f.Indent != "" {
		_, err := w.Write(SpellJSON(raw, f))
		return err
	}
	if f.BOM {
		if _, err := io.WriteString(w, BOM); err != nil {
			return err
		}
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	_, err := io.WriteString(w, Ending(f))
	return err
}

// Ending returns the bytes after the last value of a file.
func Ending(f events.FileFormat) string {
	switch {
	case !f.FinalNewline:
		return ""
	case f.Separator != "":
		return f.Separator
	}
	return "\n"
}

// JSONValue is the parsed content of a JSON file.
type JSONValue struct {
	Raw    []byte            // the value, without white space around it
	Format events.FileFormat // describes its spelling
	Exact  bool              // Raw and Format reproduce the whole file

	Object   rawjson.Members // members of Raw; nil if Raw is not an object, then NoObject is set
	NoObject error
}

// ReadJSON parses a JSON file. inside is the nesting depth at which the value will be stored.
func ReadJSON(data []byte, inside int) (JSONValue, error) {
	body, mark := bytes.CutPrefix(data, []byte(BOM))
	v := JSONValue{Raw: bytes.Trim(body, " \t\r\n"), Format: events.FileFormat{BOM: mark}}
	if v.Object, v.NoObject = rawjson.ObjectInside(body, inside); v.NoObject != nil {
		if err := rawjson.Check(body); err != nil { // checks the whole body, so that offsets count from its beginning
			return JSONValue{}, err
		}
		if err := fits(v.Raw, inside); err != nil {
			return JSONValue{}, err
		}
	}
	if rest := body[bytes.Index(body, v.Raw)+len(v.Raw):]; string(rest) == "\r\n" {
		v.Format.Separator, v.Format.FinalNewline = "\r\n", true
	} else if string(rest) == "\n" {
		v.Format.FinalNewline = true
	}
	spelled := len(data) - len(body) + len(v.Raw) + len(Ending(v.Format))
	v.Exact = bytes.HasPrefix(body, v.Raw) && bytes.HasSuffix(data, []byte(Ending(v.Format))) && spelled == len(data)
	return v, nil
}

// checkValue returns why a value cannot be stored at a nesting depth.
func checkValue(raw []byte, inside int) error {
	if err := rawjson.Check(raw); err != nil {
		return err
	}
	return fits(raw, inside)
}

// fits is checkValue for valid JSON.
func fits(raw []byte, inside int) error {
	if string(raw) == "null" {
		return &rawjson.FieldError{Reason: "null is not allowed"}
	}
	if Nesting(raw) > rawjson.MaxDepth-inside {
		return &rawjson.FieldError{Reason: "nested too deep"}
	}
	return nil
}

// Nesting returns the depth of a valid JSON value, or an upper bound that is small enough.
func Nesting(raw []byte) int {
	if n := bytes.Count(raw, []byte("{")) + bytes.Count(raw, []byte("[")); n < rawjson.MaxDepth-10 {
		return n // an upper bound
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

// LinesWriter writes a file of lines.
type LinesWriter struct {
	W      io.Writer
	Format events.FileFormat
	n      int
}

func (l *LinesWriter) separator() string {
	if l.Format.Separator != "" {
		return l.Format.Separator
	}
	return "\n"
}

// Turn writes the next line. A value with line ends between its tokens is compacted, else it would become several
// lines.
func (l *LinesWriter) Turn(raw []byte, compact bool) error {
	if compact || l.Format.Compact || bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		raw = rawjson.AppendCompact(nil, raw)
	}
	head := ""
	switch {
	case l.n > 0:
		head = l.separator()
	case l.Format.BOM:
		head = BOM
	}
	l.n++
	if head != "" {
		if _, err := io.WriteString(l.W, head); err != nil {
			return err
		}
	}
	_, err := l.W.Write(raw)
	return err
}

// End writes the bytes after the last line.
func (l *LinesWriter) End() error {
	tail := Ending(l.Format)
	if l.n == 0 {
		tail = ""
		if l.Format.BOM {
			tail = BOM
		}
	}
	_, err := io.WriteString(l.W, tail)
	return err
}

// HexSum returns a hash in hexadecimal, as formats hold it.
func HexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// SumOf returns the SHA-256 of b in hexadecimal.
func SumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Nothing is the hash of a file that the state does not render.
var Nothing = SumOf(nil)
