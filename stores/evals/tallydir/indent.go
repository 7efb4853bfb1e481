package tallydir

import (
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

const writerStyle = "  " // indent of the original writer's JSON files

// arrayWriter writes a JSON array element by element, in the layout of JSON.stringify(array, null, indent) if there
// is an indent.
type arrayWriter struct {
	w      io.Writer
	format events.FileFormat
	n      int
	buf    []byte
}

// indenter is a writer that does not need the bytes of rawjson.AppendIndentAt.
type indenter interface {
	io.Writer
	writeIndented(raw []byte, indent string, depth int)
}

func (a *arrayWriter) element(raw []byte) error {
	b := a.buf[:0]
	switch {
	case a.n > 0:
		b = append(b, ',')
	case a.format.BOM:
		b = append(b, sessiondir.BOM+"["...)
	default:
		b = append(b, '[')
	}
	a.n++
	if a.format.Indent == "" {
		b = append(b, raw...)
	} else {
		b = append(append(b, '\n'), a.format.Indent...)
		if w, ok := a.w.(indenter); ok {
			a.buf = b
			_, err := w.Write(b)
			w.writeIndented(raw, a.format.Indent, 1)
			return err
		}
		b = rawjson.AppendIndentAt(b, raw, a.format.Indent, 1)
	}
	a.buf = b
	_, err := a.w.Write(b)
	return err
}

func (a *arrayWriter) end() error {
	text := ""
	switch {
	case a.n == 0 && a.format.BOM:
		text = sessiondir.BOM + "[]"
	case a.n == 0:
		text = "[]"
	case a.format.Indent != "":
		text = "\n]"
	default:
		text = "]"
	}
	_, err := io.WriteString(a.w, text+sessiondir.Ending(a.format))
	return err
}
