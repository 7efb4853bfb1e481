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

// TurnInside is the nesting depth of a turn in its event.
const TurnInside = 3

// lineReader reads lines of bounded length.
type lineReader struct {
	r     *bufio.Reader
	limit int
}

var errLong = errors.New("too long")

// next returns the next line without its end, and that end: "\n", "\r\n" or "". The line is valid until the next
// call. If a line is too long, next skips it and returns errLong. It frees the read part as soon as the limit is
// exceeded.
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
			parts = append(parts, bytes.Clone(part)) // a growing buffer would need several times the memory of the line
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

// cutEnd splits a line into body and end.
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

// lineBytes is a lineReader over a file in memory. Its lines stay valid.
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

// TurnLine is a line of a file of turns. Raw is nil if the line is blank, or if it cannot be imported; then Err is
// set.
type TurnLine struct {
	Line int
	Raw  []byte          // valid until the next line
	Step rawjson.Members // members of Raw, also valid until the next line; nil if Raw is not an object, then NoStep is set
	End  string
	BOM  bool // a byte order mark stood before the first line

	NoStep error
	Err    error
}

// Spells records the spelling of the file as far as this line shows it.
func (t *TurnLine) Spells(f *events.FileFormat) {
	if t.Line == 1 {
		f.BOM = t.BOM
		if t.End == "\r\n" {
			f.Separator = t.End
		}
	}
	f.FinalNewline = t.End != ""
}

// read parses a line. It scans an object only once.
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

// EachLine calls f for every line. A line longer than limit bytes cannot be imported and has an error.
func EachLine(r io.Reader, limit int, f func(TurnLine) error) error {
	in := lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
	return eachLine(in.next, limit, f)
}

// EachLineOf is EachLine for a file in memory. The lines alias data and stay valid.
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
