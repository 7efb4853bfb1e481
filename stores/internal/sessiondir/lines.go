package sessiondir

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// TurnInside is how many containers stand around a turn in its event.
const TurnInside = 3

// lineReader reads lines of bounded length.
type lineReader struct {
	r     *bufio.Reader
	limit int
}

var errLong = errors.New("too long")

// next returns the next line without its end, and that end: "\n", "\r\n" or "". The
// line is valid until the next call. errLong stands for a line that was skipped: what was
// read of it is let go as soon as it is found too long.
func (l *lineReader) next() (line []byte, end string, err error) {
	var parts [][]byte
	var part []byte
	size := 0
	for full := true; full; size += len(part) {
		part, err = l.r.ReadSlice('\n')
		full = errors.Is(err, bufio.ErrBufferFull)
		switch {
		case size+len(part) > l.limit:
			parts = nil
		case full:
			parts = append(parts, bytes.Clone(part)) // a buffer that grows takes several times the line
		}
	}
	switch {
	case err != nil && (!errors.Is(err, io.EOF) || size == 0):
		return nil, "", err
	case size > l.limit:
		return nil, "\n", errLong
	case parts != nil:
		part = bytes.Join(append(parts, part), nil)
	}
	line, end = cutEnd(part)
	return line, end, nil
}

// cutEnd takes a line apart from its end.
func cutEnd(line []byte) (body []byte, end string) {
	body, ok := bytes.CutSuffix(line, []byte("\n"))
	if !ok {
		return line, ""
	}
	if body, ok := bytes.CutSuffix(body, []byte("\r")); ok {
		return body, "\r\n"
	}
	return body, "\n"
}

// lineBytes yields the lines of a file that is in memory, as lineReader does. They
// stay valid.
type lineBytes struct {
	rest  []byte
	limit int
}

func (l *lineBytes) next() (line []byte, end string, err error) {
	if len(l.rest) == 0 {
		return nil, "", io.EOF
	}
	n := len(l.rest)
	if i := bytes.IndexByte(l.rest, '\n'); i >= 0 {
		n = i + 1
	}
	line, l.rest = l.rest[:n:n], l.rest[n:]
	if n > l.limit {
		return nil, "\n", errLong
	}
	line, end = cutEnd(line)
	return line, end, nil
}

// TurnLine is a line of a file of turns: Raw is nil if it is blank, or cannot go
// in, and then Err says why.
type TurnLine struct {
	Line int
	Raw  []byte          // valid until the next line
	Step rawjson.Members // of Raw, also valid until then; nil if it is not an object, and then NoStep says why
	End  string
	BOM  bool // stood before the first line

	NoStep error
	Err    error
}

// Spells notes what a line tells of how the file is spelled.
func (t *TurnLine) Spells(f *events.FileFormat) {
	if t.Line == 1 {
		f.BOM = t.BOM
		if t.End == "\r\n" {
			f.Separator = t.End
		}
	}
	f.FinalNewline = t.End != ""
}

// read takes a line apart. A value that is an object is scanned once.
func (t *TurnLine) read(line []byte) {
	if t.Raw = bytes.Trim(line, " \t\r\n"); len(t.Raw) == 0 {
		t.Raw = nil
		return
	}
	if t.Step, t.NoStep = rawjson.ObjectInside(t.Raw, TurnInside); t.NoStep != nil {
		t.Err = checkValue(t.Raw, TurnInside)
	}
	if t.Err != nil {
		t.Raw, t.Step = nil, nil
	}
}

// EachLine calls f for every line. Lines of more than limit bytes cannot go in.
func EachLine(r io.Reader, limit int, f func(TurnLine) error) error {
	in := lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
	return eachLine(in.next, limit, f)
}

// EachLineOf is EachLine of a file that is in memory. What f is given aliases it, and
// stays valid.
func EachLineOf(data []byte, limit int, f func(TurnLine) error) error {
	in := lineBytes{rest: data, limit: limit}
	return eachLine(in.next, limit, f)
}

func eachLine(next func() (line []byte, end string, err error), limit int, f func(TurnLine) error) error {
	for n := 1; ; n++ {
		line, end, err := next()
		t := TurnLine{Line: n, End: end}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLong):
			t.Err = fmt.Errorf("longer than %d bytes", limit)
		case err != nil:
			return err
		default:
			if n == 1 {
				line, t.BOM = bytes.CutPrefix(line, []byte(BOM))
			}
			t.read(line)
		}
		if err := f(t); err != nil {
			return err
		}
	}
}

// EachTurn calls f for every line that is a turn.
func EachTurn(r io.Reader, limit int, f func(TurnLine) error) error {
	return EachLine(r, limit, func(t TurnLine) error {
		if t.Raw == nil {
			return nil
		}
		return f(t)
	})
}
