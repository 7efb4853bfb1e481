package tallydir

import (
	"bytes"
	"errors"
	"io"

	"github.com/tallylog/tally/internal/rawjson"
)

// matcher is written what a file is expected to be, and compares.
type matcher struct {
	r       io.Reader // of the file; nil: it is in memory
	rest    []byte    // of a file in memory: what nothing was compared with yet
	buf     []byte
	differs bool
	err     error // of reading
}

const matchAtOnce = 64 << 10

// Write compares the next bytes. It never fails.
func (m *matcher) Write(p []byte) (int, error) {
	if m.r == nil {
		m.writeMemory(p)
		return len(p), nil
	}
	if m.buf == nil {
		m.buf = make([]byte, matchAtOnce)
	}
	for rest := p; len(rest) > 0 && !m.differs; {
		next := rest[:min(len(rest), len(m.buf))]
		n, err := io.ReadFull(m.r, m.buf[:len(next)])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			m.err = err
		}
		m.differs = err != nil || !bytes.Equal(m.buf[:n], next)
		rest = rest[len(next):]
	}
	return len(p), nil
}

// writeMemory compares with a file in memory. What is written is mostly a part of that
// very file, and equal without a look at it.
func (m *matcher) writeMemory(p []byte) {
	if m.differs = m.differs || !bytes.HasPrefix(m.rest, p); !m.differs {
		m.rest = m.rest[len(p):]
	}
}

// writeIndented compares with a value in the layout of rawjson.AppendIndentAt, which is
// not made for it.
func (m *matcher) writeIndented(raw []byte, indent string, depth int) {
	if m.differs {
		return
	}
	rest, ok := rawjson.CutIndentAt(m.rest, raw, indent, depth)
	if m.differs = !ok; ok {
		m.rest = rest
	}
}

// matched reports whether what was written is the file, all of it.
func (m *matcher) matched() (bool, error) {
	if m.differs || m.err != nil {
		return false, m.err
	}
	if m.r == nil {
		return len(m.rest) == 0, nil
	}
	var one [1]byte
	_, err := io.ReadFull(m.r, one[:])
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
