package tallydir

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

const turnInside = 3 // containers around a turn in its event

// lineReader reads lines of bounded length and hashes all that it reads.
type lineReader struct {
	r     *bufio.Reader
	buf   []byte
	limit int
}

var errLong = errors.New("too long")

// next gives the next line without its end, and that end: "\n", "\r\n" or "". The
// line is valid until the next call. errLong stands for a line that was skipped.
func (l *lineReader) next() (line []byte, end string, err error) {
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if long = long || len(l.buf)+len(part) > l.limit; !long {
			l.buf = append(l.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || len(l.buf) == 0 && len(part) == 0 && !long) {
			return nil, "", err
		}
		break
	}
	if long {
		return nil, "\n", errLong
	}
	line = l.buf
	if body, ok := bytes.CutSuffix(line, []byte("\n")); ok {
		if body, ok := bytes.CutSuffix(body, []byte("\r")); ok {
			return body, "\r\n", nil
		}
		return body, "\n", nil
	}
	return line, "", nil
}

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
// it, laid out as traces says, nil if nobody needs to know.
func scanLines(r io.Reader, limit int, have []projector.Turn, traces *events.FileFormat) (*lines, error) {
	file, render, derived := sha256.New(), sha256.New(), sha256.New()
	l := &lines{}
	out := linesWriter{w: render}
	var d *deriver
	if traces != nil {
		d = &deriver{out: arrayWriter{w: derived, format: *traces}}
	}
	same := true
	err := eachLine(io.TeeReader(r, file), limit, func(t turnLine) error {
		if t.line == 1 {
			l.format.BOM = t.bom
			if t.end == "\r\n" {
				l.format.Separator = t.end
			}
			out.format = l.format
		}
		l.format.FinalNewline = t.end != ""
		if t.err != nil {
			l.report(t.line, t.err.Error())
			return nil
		}
		if t.raw == nil {
			return nil
		}
		step, err := rawjson.Object(t.raw)
		if reason := wrongStep(step, err); reason != "" {
			l.report(t.line, reason+" (kept as it stands)")
		}
		if l.turns == 0 {
			l.id = memberText(step, "conversationId")
		}
		if l.at == "" {
			l.at = validTime(step, "timestamp")
		}
		if same = same && l.turns < len(have) && bytes.Equal(have[l.turns].Raw, t.raw); same {
			l.kept++
		}
		l.turns++
		if err := out.turn(t.raw, false); err != nil {
			return err
		}
		return d.turn(step, err == nil)
	})
	if err != nil {
		return nil, err
	}
	out.format = l.format
	if err := errors.Join(out.end(), d.end()); err != nil {
		return nil, err
	}
	l.sum, l.render, l.derived = hexSum(file), hexSum(render), hexSum(derived)
	return l, nil
}

// turnLine is a line of a file of turns: raw is nil if it is blank, or cannot go
// in, and then err says why.
type turnLine struct {
	line int
	raw  []byte // valid until the next line
	end  string
	bom  bool // stood before the first line
	err  error
}

// eachLine calls f for every line. Lines of more than limit bytes cannot go in.
func eachLine(r io.Reader, limit int, f func(turnLine) error) error {
	in := lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
	for n := 1; ; n++ {
		line, end, err := in.next()
		t := turnLine{line: n, end: end}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLong):
			t.err = fmt.Errorf("longer than %d bytes", limit)
		case err != nil:
			return err
		default:
			if n == 1 {
				line, t.bom = bytes.CutPrefix(line, []byte(bom))
			}
			if t.raw = bytes.Trim(line, " \t\r\n"); len(t.raw) == 0 {
				t.raw = nil
			} else if t.err = checkValue(t.raw, turnInside); t.err != nil {
				t.raw = nil
			}
		}
		if err := f(t); err != nil {
			return err
		}
	}
}

// eachTurn calls f for every line that is a turn.
func eachTurn(r io.Reader, limit int, f func(raw []byte) error) error {
	return eachLine(r, limit, func(t turnLine) error {
		if t.raw == nil {
			return nil
		}
		return f(t.raw)
	})
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
