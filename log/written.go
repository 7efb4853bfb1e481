package log

import (
	"errors"
	"sync"

	"github.com/tallylog/tally/internal/nats/segindex"
)

// written remembers what was put into a segment, so that its index can be made without
// reading it again, which would be a tenth of what an append costs. It is to be given
// up when it may lack something: then the segment is read.
type written struct {
	mu       sync.Mutex
	build    *segindex.Builder
	messages uint64
}

// maxWritten bounds what is remembered, in ids; a subject counts as several.
const (
	maxWritten     = 1 << 20
	writtenSubject = 8
)

func newWritten() *written { return &written{build: segindex.NewBuilder()} }

// note remembers a publication that was stored, or that may have been.
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

// wrote returns the index of a segment that holds so many messages, if all of them are
// remembered. Nothing is written to it any more.
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
