package tallydir

import (
	"bytes"
	"crypto/sha256"
	"errors"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// lines is the result of scanning a file of turns.
type lines struct {
	format events.FileFormat
	turns  int
	kept   int  // number of leading turns that the session has
	traced bool // stepTraces.json equals the traces computed from the turns

	id string           // conversationId of the first turn
	at events.Timestamp // first time of a turn

	list []events.Entry // all turns, if they are kept
}

// lineScan scans a file of turns once.
type lineScan struct {
	file   *sessiondir.File                            // receives the bad lines
	each   func(func(sessiondir.TurnLine) error) error // calls its argument for each line of the file
	have   []projector.Turn                            // turns of the session
	render sessiondir.LinesWriter                      // receives the rendered turns
	derive *deriver                                    // receives the computed step traces; nil: not needed
	keep   bool                                        // keep the turns, which then stay valid
}

// run scans the file: its content, its spelling, and where it differs from the session's turns.
func (sc *lineScan) run() (*lines, error) {
	l := &lines{}
	same := compared{exactly: true, compactly: true, dense: true}
	err := sc.each(func(t sessiondir.TurnLine) error {
		t.Spells(&l.format)
		if t.Line == 1 {
			sc.render.Format = l.format
		}
		if t.Err != nil {
			sc.file.BadLine(t.Line, t.Err.Error())
			return nil
		}
		if t.Raw == nil {
			return nil
		}
		if reason := wrongStep(t.Step, t.NoStep); reason != "" {
			sc.file.BadLine(t.Line, reason+" (kept as it is)")
		}
		if l.turns == 0 {
			l.id = t.Step.Text("conversationId")
		}
		if l.at == "" {
			l.at = steps.TimeIn(t.Step, "timestamp")
		}
		if sc.keep {
			l.list = append(l.list, steps.Entry(t.Raw, t.Step))
		}
		same.next(sc.have, l.turns, t.Raw)
		l.turns++
		if err := sc.render.Turn(t.Raw, false); err != nil {
			return err
		}
		return sc.derive.turn(t.Step, t.NoStep == nil)
	})
	if err != nil {
		return nil, err
	}
	l.kept, l.format.Compact = same.kept()
	sc.render.Format = l.format
	return l, errors.Join(sc.render.End(), sc.derive.end())
}

// compared is the comparison of a file's turns with those of a session, from the first one on.
type compared struct {
	exactly, compactly bool // no turn differs so far, or only in white space
	exact, compact     int  // number of turns before the first difference
	spaced             bool // a turn of the session has white space that the file lacks
	dense              bool // no turn in the file has white space
}

func (c *compared) next(have []projector.Turn, i int, line []byte) {
	if c.spaced {
		c.dense = c.dense && isCompact(line)
	}
	if c.compactly = c.compactly && i < len(have); !c.compactly {
		c.exactly = false
		return
	}
	raw := rawOf(&have[i])
	switch {
	case bytes.Equal(raw, line):
	case bytes.Equal(rawjson.AppendCompact(nil, raw), line):
		if c.exactly = false; !c.spaced {
			c.spaced = true
			for j := range i { // the file has the same turns
				c.dense = c.dense && isCompact(have[j].Raw)
			}
		}
	default:
		c.exactly, c.compactly = false, false
		return
	}
	if c.compact++; c.exactly {
		c.exact++
	}
}

// kept returns how many turns of the session the file has, and whether it has them without their white space, as a
// file that was not imported.
func (c *compared) kept() (n int, compact bool) {
	if c.spaced && c.dense {
		return c.compact, true
	}
	return c.exact, false
}

func isCompact(raw []byte) bool { return bytes.Equal(rawjson.AppendCompact(nil, raw), raw) }

// rendered returns the hash of the rendered turns.
func (l *lines) rendered() (string, error) {
	h := sha256.New()
	out := sessiondir.LinesWriter{W: h, Format: l.format}
	for _, t := range l.list {
		if err := out.Turn(t.Turn, false); err != nil {
			return "", err
		}
	}
	err := out.End()
	return sessiondir.HexSum(h), err
}

// wrongStep returns the field of a step whose type readers of steps refuse, "" if all types are right.
func wrongStep(step rawjson.Members, err error) string {
	if err != nil {
		return "not a step: " + err.Error()
	}
	for _, field := range []struct{ name, first, want string }{
		{"stepIndex", "-0123456789", "a number"}, {"input", "{", "an object"}, {"output", "[", "an array"},
		{"id", `"`, "a string"}, {"timestamp", `"`, "a time such as 2026-01-02T03:04:05.678Z"}, {"metadata", "{", "an object"},
	} {
		raw, ok := step.Get(field.name)
		if ok && !bytes.ContainsAny(raw[:1], field.first) {
			return field.name + ": want " + field.want
		}
		if ok && field.name == "timestamp" && steps.TimeIn(step, field.name) == "" {
			return field.name + ": want " + field.want
		}
	}
	return ""
}
