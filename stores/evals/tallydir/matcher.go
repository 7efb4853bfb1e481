package tallydir

import (
	"bytes"

	"github.com/tallylog/tally/internal/rawjson"
)

// matcher is written what a file in memory is expected to be. Writing never fails.
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

// matched reports whether what was written is the file, all of it.
func (m *matcher) matched() bool { return !m.differs && len(m.rest) == 0 }
