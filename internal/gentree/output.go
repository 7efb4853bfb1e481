package gentree

import (
	"bufio"
	"errors"
	"os"
	"strings"
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

// compact spells a value as JSON.stringify(v) does.
func compact(b *strings.Builder, v value) {
	switch v := v.(type) {
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(m.name))
			b.WriteByte(':')
			compact(b, m.value)
		}
		b.WriteByte('}')
	case array:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			compact(b, e)
		}
		b.WriteByte(']')
	case string:
		b.WriteString(quote(v))
	case raw:
		b.WriteString(string(v))
	}
}

// pretty spells a value as JSON.stringify(v, null, indent) does, its lines after
// the first behind prefix.
func pretty(b *strings.Builder, v value, prefix, indent string) {
	inner := prefix + indent
	switch v := v.(type) {
	case object:
		if len(v) == 0 {
			b.WriteString("{}")
			return
		}
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n" + inner + quote(m.name) + ": ")
			pretty(b, m.value, inner, indent)
		}
		b.WriteString("\n" + prefix + "}")
	case array:
		if len(v) == 0 {
			b.WriteString("[]")
			return
		}
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n" + inner)
			pretty(b, e, inner, indent)
		}
		b.WriteString("\n" + prefix + "]")
	default:
		compact(b, v)
	}
}

// quote spells a string as JavaScript does.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20:
			const hex = "0123456789abcdef"
			b.WriteString(`\u00`)
			b.WriteByte(hex[r>>4])
			b.WriteByte(hex[r&15])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
