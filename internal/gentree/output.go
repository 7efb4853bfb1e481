package gentree

import (
	"bufio"
	"errors"
	"os"
	"strings"

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

// spell spells a value as JSON.stringify(v, null, indent) does, its lines after the
// first behind prefix; all in one line without indent.
func spell(v value, prefix, indent string) string {
	var b strings.Builder
	write(&b, v, prefix, indent)
	return b.String()
}

func write(b *strings.Builder, v value, prefix, indent string) {
	switch v := v.(type) {
	case object:
		colon := ":"
		if indent != "" {
			colon = ": "
		}
		writeAll(b, "{}", len(v), prefix, indent, func(i int, prefix string) {
			b.WriteString(quote(v[i].name) + colon)
			write(b, v[i].value, prefix, indent)
		})
	case array:
		writeAll(b, "[]", len(v), prefix, indent, func(i int, prefix string) { write(b, v[i], prefix, indent) })
	case string:
		b.WriteString(quote(v))
	case raw:
		b.WriteString(string(v))
	}
}

// writeAll writes n things between brackets.
func writeAll(b *strings.Builder, brackets string, n int, prefix, indent string, each func(i int, prefix string)) {
	line := func(string) {}
	if indent != "" && n > 0 {
		line = func(prefix string) { b.WriteString("\n" + prefix) }
	}
	b.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		line(prefix + indent)
		each(i, prefix+indent)
	}
	line(prefix)
	b.WriteByte(brackets[1])
}

// quote spells a string as JavaScript does.
func quote(s string) string { return string(rawjson.AppendString(nil, s)) }
