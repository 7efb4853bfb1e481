// Package lines reads text line by line in bounded memory.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrEnd reports the end of the input.
var ErrEnd = errors.New("end of input")

// TooLongError reports that a line was skipped because of its length.
type TooLongError struct {
	Line  int
	Bytes int64 // of the whole line
	Limit int   // the limit that it exceeds
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("%d bytes, at most %d are read", e.Bytes, e.Limit)
}

// Reader reads lines that end with \n; the last one need not.
type Reader struct {
	r     *bufio.Reader
	limit int
	line  int
	buf   []byte
}

// NewReader returns a Reader of lines of at most limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// Line returns the number of the line that Next returned last, from 1.
func (r *Reader) Line() int { return r.line }

// Next returns the next line without its \n; the caller owns it. At the end it returns ErrEnd. It skips a line over the limit and returns a *TooLongError; the
// next call reads on.
func (r *Reader) Next() ([]byte, error) {
	r.buf = r.buf[:0]
	var size int64
	for {
		part, err := r.r.ReadSlice('\n')
		size += int64(len(part))
		if size <= int64(r.limit)+1 {
			r.buf = append(r.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && size == 0:
			return nil, ErrEnd
		case err != nil && !errors.Is(err, io.EOF):
			r.line++
			return nil, err
		}
		r.line++
		if n := len(part); n > 0 && part[n-1] == '\n' {
			size--
		}
		return r.finish(size)
	}
}

func (r *Reader) finish(size int64) ([]byte, error) {
	if size > int64(r.limit) {
		r.buf = nil // it may be large
		return nil, &TooLongError{r.line, size, r.limit}
	}
	return bytes.Clone(r.buf[:size]), nil
}
