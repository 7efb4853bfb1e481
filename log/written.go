package log

import (
	"errors"
	"sync"

	"github.com/tallylog/tally/internal/nats/segindex"
)

// written collects the messages of a segment, so that its index can be made without reading it again, which would add a
// tenth to the cost of an append. It is dropped when it may be incomplete: then the segment is read.
type written struct {
	mu       sync.Mutex
	build    *segindex.Builder
	messages uint64
}

// maxWritten bounds its size, in ids of 16 bytes; a subject counts as several.
const (
	maxWritten     = 1 << 20
	writtenSubject = 5
)

func newWritten() *written { return &written{build: segindex.NewBuilder()} }

// note adds a publication that was stored, or that may have been.
func (s *segment) note(p Publication, got Receipt, err error) {
	w := s.written.Load()
	if w == nil || got.Duplicate {
		return
	}
	if err != nil {
		if errors.Is(err, ErrUnknown) {
			s.written.Store(nil)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := p.Messages()
	at := uint64(got.Last) - uint64(n-1)
	for _, to := range p.Writes {
		for _, m := range to.Messages {
			w.build.Add(to.Subject, m.ID, at)
			at++
		}
	}
	w.messages += uint64(n)
	if w.messages+writtenSubject*uint64(w.build.Subjects()) > maxWritten {
		s.written.Store(nil)
	}
}

// wrote returns the index of a segment that holds this many messages, if all of them were collected. The segment is
// full.
func (s *segment) wrote(messages uint64) *segindex.Builder {
	w := s.written.Load()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.messages != messages {
		return nil
	}
	return w.build
}
