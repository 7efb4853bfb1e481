package tallydir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// lines is what a file of turns was found to be.
type lines struct {
	format  events.FileFormat
	turns   int
	kept    int    // of them: the first ones, equal to those that the session has
	sum     string // of the file
	render  string // of what the turns give when rendered
	derived string // of the step traces that the turns give
	bad     []issue
	more    int // bad lines beyond those listed

	id string           // conversationId of the first turn
	at events.Timestamp // first time of a turn

	list []turn // all of them, if they are kept
}

// turn is a turn, with the id and the time that it says itself.
type turn struct {
	raw events.Raw
	id  string
	at  events.Timestamp
}

// turnOf reads a turn; step is nil if it is no object, and says nothing then.
func turnOf(raw events.Raw, step rawjson.Members) turn {
	t := turn{raw: raw, at: validTime(step, "timestamp")}
	if id := memberText(step, "id"); len(id) <= events.MaxIDLen {
		t.id = id
	}
	return t
}

// issue is a line that did not go in, or not as what it should be.
type issue struct {
	line   int
	reason string
}

const maxIssues = 50 // listed for one file

func (l *lines) report(line int, reason string) {
	if len(l.bad) < maxIssues {
		l.bad = append(l.bad, issue{line, reason})
	} else {
		l.more++
	}
}

// scanLines reads a file of turns once: what is in it, how it is spelled, where it
// departs from the turns that the session has, and which step traces follow from
// it, laid out as traces says, nil if nobody needs to know. keep says whether the
// turns are kept.
func scanLines(r io.Reader, limit int, have []projector.Turn, traces *events.FileFormat, keep bool) (*lines, error) {
	file, render, derived := sha256.New(), sha256.New(), sha256.New()
	l := &lines{}
	out := foreign.LinesWriter{W: render}
	var d *deriver
	if traces != nil {
		d = &deriver{out: arrayWriter{w: derived, format: *traces}}
	}
	same := true
	err := foreign.EachLine(io.TeeReader(r, file), limit, func(t foreign.TurnLine) error {
		if t.Line == 1 {
			l.format.BOM = t.BOM
			if t.End == "\r\n" {
				l.format.Separator = t.End
			}
			out.Format = l.format
		}
		l.format.FinalNewline = t.End != ""
		if t.Err != nil {
			l.report(t.Line, t.Err.Error())
			return nil
		}
		if t.Raw == nil {
			return nil
		}
		if reason := wrongStep(t.Step, t.NoStep); reason != "" {
			l.report(t.Line, reason+" (kept as it stands)")
		}
		if l.turns == 0 {
			l.id = memberText(t.Step, "conversationId")
		}
		if l.at == "" {
			l.at = validTime(t.Step, "timestamp")
		}
		if keep {
			l.list = append(l.list, turnOf(bytes.Clone(t.Raw), t.Step))
		}
		if same = same && l.turns < len(have) && bytes.Equal(have[l.turns].Raw, t.Raw); same {
			l.kept++
		}
		l.turns++
		if err := out.Turn(t.Raw, false); err != nil {
			return err
		}
		return d.turn(t.Step, t.NoStep == nil)
	})
	if err != nil {
		return nil, err
	}
	out.Format = l.format
	if err := errors.Join(out.End(), d.end()); err != nil {
		return nil, err
	}
	l.sum, l.render, l.derived = foreign.HexSum(file), foreign.HexSum(render), foreign.HexSum(derived)
	return l, nil
}

// wrongStep says which field of a step has a type that readers of steps do not
// take, "" if none has.
func wrongStep(step rawjson.Members, err error) string {
	if err != nil {
		return "no step: " + err.Error()
	}
	for _, field := range []struct{ name, first, want string }{
		{"stepIndex", "-0123456789", "a number"}, {"input", "{", "an object"}, {"output", "[", "an array"},
		{"id", `"`, "a string"}, {"timestamp", `"`, "a time such as 2026-01-02T03:04:05.678Z"}, {"metadata", "{", "an object"},
	} {
		raw, ok := step.Get(field.name)
		if ok && !bytes.ContainsAny(raw[:1], field.first) {
			return field.name + ": want " + field.want
		}
		if ok && field.name == "timestamp" && validTime(step, field.name) == "" {
			return field.name + ": want " + field.want
		}
	}
	return ""
}

// validTime gives a member that is a time, "" if it is none.
func validTime(m rawjson.Members, name string) events.Timestamp {
	at := events.Timestamp(memberText(m, name))
	if _, ok := at.Time(); !ok {
		return ""
	}
	return at
}
