package gentree

import (
	"bufio"
	"errors"
	"os"

	"github.com/tallylog/tally/internal/rawjson"
)

// output is a file being written. The first error stays until close.
type output struct {
	f    *os.File
	w    *bufio.Writer
	size int64
	err  error
}

func newOutput(f *os.File) *output { return &output{f: f, w: bufio.NewWriterSize(f, 64<<10)} }

func (o *output) text(s string) {
	n, err := o.w.WriteString(s)
	o.size += int64(n)
	if o.err == nil {
		o.err = err
	}
}

func (o *output) close() error { return errors.Join(o.err, o.w.Flush(), o.f.Close()) }

// A value is a JSON value that can be spelled compact or over several lines.
type value interface{}

type (
	member struct {
		name  string
		value value
	}
	object []member
	array  []value
	raw    string // any other value, as it is spelled
)

// spell writes a value at a depth, as JSON.stringify(v, null, indent) does; without indent, in one line.
func spell(v value, depth int, indent string) string {
	b := appendValue(nil, v)
	if indent != "" {
		b = rawjson.AppendIndentAt(nil, b, indent, depth)
	}
	return string(b)
}

func appendValue(b []byte, v value) []byte {
	switch v := v.(type) {
	case object:
		b = append(b, '{')
		for i, m := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(append(rawjson.AppendString(b, m.name), ':'), m.value)
		}
		return append(b, '}')
	case array:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, element)
		}
		return append(b, ']')
	case string:
		return rawjson.AppendString(b, v)
	case raw:
		return append(b, v...)
	}
	return b
}
