package tallydir

import (
	"bytes"

	"github.com/tallylog/tally/internal/rawjson"
)

// matcher is a writer that compares its input with a file in memory. Write never fails.
type matcher struct {
	rest    []byte // not compared yet
	differs bool
}

// Write compares the next bytes. Usually they are a slice of the same memory, which compares without reading.
func (m *matcher) Write(p []byte) (int, error) {
	if m.differs = m.differs || !bytes.HasPrefix(m.rest, p); !m.differs {
		m.rest = m.rest[len(p):]
	}
	return len(p), nil
}

// writeIndented implements indenter. It compares the layout without building it.
func (m *matcher) writeIndented(raw []byte, indent string, depth int) {
	if m.differs {
		return
	}
	rest, ok := rawjson.CutIndentAt(m.rest, raw, indent, depth)
	if m.differs = !ok; ok {
		m.rest = rest
	}
}

// matched reports whether the written bytes are the whole file.
func (m *matcher) matched() bool { return !m.differs && len(m.rest) == 0 }
