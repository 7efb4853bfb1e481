package tallydir

import (
	"bytes"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// tracer appends the step traces of steps, compact or with the white space that stands
// in the steps.
type tracer struct{ compact bool }

// trace appends the step trace of the step at an index.
//
// Where a step does not say what a trace needs, the values are those of the
// original's conversion, but for the time: what was not recorded is left out.
func (t tracer) trace(dst []byte, step rawjson.Members, index int) []byte {
	metadata := memberObject(step, "metadata")
	dst = append(dst, `{"turnIndex":`...)
	if at, ok := metadata.Get("originalTurnIndex"); ok {
		dst = t.value(dst, at)
	} else if at, ok := step.Get("stepIndex"); ok {
		dst = t.value(dst, at)
	} else {
		dst = strconv.AppendInt(dst, int64(index), 10)
	}
	dst = t.member(dst, "userMessage", step, "input", "null")
	dst = t.member(dst, "agentMessages", step, "output", "[]")
	if _, ok := step.Get("timestamp"); ok {
		dst = t.member(dst, "timestamp", step, "timestamp", "")
	}
	dst = t.member(dst, "stepId", metadata, "stepId", "null")
	dst = t.member(dst, "selection", metadata, "selection", `{"method":"none"}`)
	if _, ok := metadata.Get("end"); ok {
		dst = t.member(dst, "end", metadata, "end", "")
	}
	return append(dst, '}')
}

func (t tracer) member(dst []byte, name string, from rawjson.Members, member, otherwise string) []byte {
	dst = append(dst, `,"`...)
	dst = append(append(dst, name...), `":`...)
	if raw, ok := from.Get(member); ok {
		return t.value(dst, raw)
	}
	return append(dst, otherwise...)
}

func (t tracer) value(dst []byte, raw events.Raw) []byte {
	if t.compact {
		return rawjson.AppendCompact(dst, raw)
	}
	return append(dst, raw...)
}

// memberObject returns a member that is an object, nil if it is not.
func memberObject(m rawjson.Members, name string) rawjson.Members {
	raw, ok := m.Get(name)
	if !ok {
		return nil
	}
	inner, err := rawjson.Object(raw)
	if err != nil {
		return nil
	}
	return inner
}

// memberText returns a member that is a string, "" if it is not.
func memberText(m rawjson.Members, name string) string {
	raw, ok := m.Get(name)
	if !ok {
		return ""
	}
	text, err := rawjson.String(raw)
	if err != nil {
		return ""
	}
	return text
}

// deriver writes the step traces of a list of turns. The nil deriver does nothing.
type deriver struct {
	out   arrayWriter
	index int
	buf   []byte
}

// turn derives the next step; a turn that is not an object has no trace.
func (d *deriver) turn(step rawjson.Members, ok bool) error {
	if d == nil {
		return nil
	}
	index := d.index
	d.index++
	if !ok {
		return nil
	}
	// An indent gives all white space between tokens anew.
	d.buf = tracer{compact: d.out.format.Indent == ""}.trace(d.buf[:0], step, index)
	return d.out.element(d.buf)
}

// end writes what stands behind the last trace.
func (d *deriver) end() error {
	if d == nil {
		return nil
	}
	return d.out.end()
}

// arrayFormat guesses from its first and last bytes how an array is laid out. A
// wrong guess costs nothing but that the file is kept in another way.
func arrayFormat(head, tail []byte) events.FileFormat {
	var f events.FileFormat
	head, f.BOM = bytes.CutPrefix(head, []byte(foreign.BOM))
	if rest, ok := bytes.CutPrefix(head, []byte("[\n")); ok {
		f.Indent = string(rest[:len(rest)-len(bytes.TrimLeft(rest, " \t"))])
	}
	f.FinalNewline = bytes.HasSuffix(tail, []byte("\n"))
	if bytes.HasSuffix(tail, []byte("\r\n")) {
		f.Separator = "\r\n"
	}
	return f
}
