package tallydir

import (
	"bytes"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// deriver computes and writes the step traces of turns. A nil deriver does nothing.
type deriver struct {
	out   arrayWriter
	index int
	buf   []byte
}

// turn writes the trace of the next step. A turn that is not an object has no trace.
func (d *deriver) turn(step rawjson.Members, ok bool) error {
	if d == nil {
		return nil
	}
	index := d.index
	d.index++
	if !ok {
		return nil
	}
	// An indent replaces all white space between tokens.
	d.buf = steps.AppendTrace(d.buf[:0], step, index, d.out.format.Indent == "")
	return d.out.element(d.buf)
}

// end writes the bytes after the last trace.
func (d *deriver) end() error {
	if d == nil {
		return nil
	}
	return d.out.end()
}

// arrayFormat guesses the format of an array from its first and last bytes. After a wrong guess, the file is only
// kept in another way.
func arrayFormat(head, tail []byte) events.FileFormat {
	var f events.FileFormat
	head, f.BOM = bytes.CutPrefix(head, []byte(sessiondir.BOM))
	if rest, ok := bytes.CutPrefix(head, []byte("[\n")); ok {
		f.Indent = string(rest[:len(rest)-len(bytes.TrimLeft(rest, " \t"))])
	}
	f.FinalNewline = bytes.HasSuffix(tail, []byte("\n"))
	if bytes.HasSuffix(tail, []byte("\r\n")) {
		f.Separator = "\r\n"
	}
	return f
}
