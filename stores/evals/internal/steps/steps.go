// Package steps says once what the steps of a simulated conversation mean: which step
// trace follows from each. The conversation that a program holds and the folder on disk
// both read it. It works on the steps' own JSON, since those bytes come out as they went
// in.
package steps

import (
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// NoSelection is the selection of a step that does not say how it was chosen.
const NoSelection = `{"method":"none"}`

// AppendTrace appends the step trace of the step at an index, compact or with the white
// space that stands in the step.
//
// Values are the step's own, whatever they are. Where a step does not say what a trace
// needs, they are those of the original's conversion, but for the time: what was not
// recorded is left out.
func AppendTrace(dst []byte, step rawjson.Members, index int, compact bool) []byte {
	t := tracer{compact}
	metadata := Object(step, "metadata")
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
	dst = t.member(dst, "selection", metadata, "selection", NoSelection)
	if _, ok := metadata.Get("end"); ok {
		dst = t.member(dst, "end", metadata, "end", "")
	}
	return append(dst, '}')
}

// TracesThread is the thread of step traces that do not follow from the steps.
const TracesThread = "traces"

// HasTraces reports whether a session has step traces, and whether they follow from the
// steps, by how the file that they are of is spelled, if that is known. A simulation has
// some even if nobody said how they are spelled.
func HasTraces(s *projector.Session, f events.FileFormat, known bool) (there, derived bool) {
	if known && f.Derived {
		return true, true
	}
	if s.Threads[TracesThread] != nil {
		return true, false
	}
	_, simulated := s.Ledger.Fields.Get("trajectory")
	derived = !known && simulated && s.Threads[events.MainThread] != nil
	return derived, derived
}

type tracer struct{ compact bool }

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

// Object returns a member that is an object, nil if it is not one.
func Object(m rawjson.Members, name string) rawjson.Members {
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

// Text returns a member that is a string, "" if it is not one.
func Text(m rawjson.Members, name string) string {
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
