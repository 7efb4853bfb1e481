package tallydir

import (
	"bytes"
	"errors"
	"io"

	"github.com/tallylog/tally/internal/rawjson"
)

// comparison is written what a file is expected to be.
type comparison interface {
	io.Writer // never fails

	// matched reports whether what was written is the file, all of it.
	matched() (bool, error)
}

// matcher compares with a file in memory.
type matcher struct {
	rest    []byte // what nothing was compared with yet
	differs bool
}

// Write compares the next bytes. They are mostly a part of that very file, and equal
// without a look at them.
func (m *matcher) Write(p []byte) (int, error) {
	if m.differs = m.differs || !bytes.HasPrefix(m.rest, p); !m.differs {
		m.rest = m.rest[len(p):]
	}
	return len(p), nil
}

// writeIndented implements indenter: the layout is compared with and not made.
func (m *matcher) writeIndented(raw []byte, indent string, depth int) {
	if m.differs {
		return
	}
	rest, ok := rawjson.CutIndentAt(m.rest, raw, indent, depth)
	if m.differs = !ok; ok {
		m.rest = rest
	}
}

func (m *matcher) matched() (bool, error) { return !m.differs && len(m.rest) == 0, nil }

// fileMatcher compares with a file that it reads.
type fileMatcher struct {
	r       io.Reader
	buf     []byte
	differs bool
	err     error // of reading
}

const matchAtOnce = 64 << 10

// Write compares the next bytes.
func (m *fileMatcher) Write(p []byte) (int, error) {
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

func (m *fileMatcher) matched() (bool, error) {
	if m.differs || m.err != nil {
		return false, m.err
	}
	var one [1]byte
	_, err := io.ReadFull(m.r, one[:])
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
