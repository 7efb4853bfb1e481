// Package steps computes step traces from the steps of a simulated conversation. The handle for programs and the
// folder layout both use it. It works on the steps' own JSON, because imported bytes must be exported unchanged.
package steps

import (
	"cmp"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// NoSelection is the selection of a step that records none.
const NoSelection = `{"method":"none"}`

// AppendTrace appends the step trace of the step at an index, compact or with the step's white space.
//
// Values are the step's own, without a check. Missing values are those of the original's conversion, except for the
// time, which is omitted.
func AppendTrace(dst []byte, step rawjson.Members, index int, compact bool) []byte {
	t := tracer{compact}
	metadata := step.Object("metadata")
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

// TracesThread is the thread of step traces that cannot be computed from the steps.
const TracesThread = "traces"

// HasTraces reports whether a session has step traces, and whether they are computed from the steps. f is the format
// of their file, if known is set. A simulation has step traces even without a format.
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

// Entry returns a step as a turn of main, with the step's own id and time. A step that is not an object has no
// members, and neither id nor time.
func Entry(raw events.Raw, step rawjson.Members) events.Entry {
	e := events.Entry{Thread: events.MainThread, Turn: raw, Timestamp: TimeIn(step, "timestamp")}
	if id := step.Text("id"); len(id) <= events.MaxIDLen {
		e.ID = id
	}
	return e
}

// Kinds of runs: evaluations of a conversation, and simulations. Only a simulation can end without being completed.
const (
	KindTally      = "tally"
	KindTrajectory = "trajectory"
)

// Outcome returns outcome and end of a run of a kind from its result. A result that is not an object has no members.
func Outcome(kind string, result rawjson.Members) (string, events.Timestamp) {
	at := cmp.Or(TimeIn(result, "createdAt"), TimeIn(result, "timestamp"))
	completed, said := result.Get("completed")
	if kind != KindTrajectory || !said || string(completed) != "false" {
		return "completed", at
	}
	switch reason := result.Text("reason"); reason {
	case "", "error":
		return "failed", at
	default:
		return "stopped:" + reason, at
	}
}

// TimeIn returns a member that is a time, "" if it is not one.
func TimeIn(m rawjson.Members, name string) events.Timestamp {
	at := events.Timestamp(m.Text(name))
	if _, ok := at.Time(); !ok {
		return ""
	}
	return at
}
