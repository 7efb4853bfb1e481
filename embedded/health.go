package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/log"
)

// After a failed write, on a full or broken disk, the server's stream answers no requests until it is opened again.
// After a failed sync, the content of the disk is unknown. In both cases tally refuses appends at once and reads
// continue. When there is room again, tally closes the streams, writes the blocks again that no sync covered, and opens
// the streams.

// health tracks whether the store takes appends.
type health struct {
	room *room

	mu   sync.Mutex // guards the fields below
	sick error      // why the store refuses appends; nil: it takes them
	n    int        // failed writes so far
	kick chan struct{}
}

func newHealth(r *room) *health { return &health{room: r, kick: make(chan struct{}, 1)} }

// check implements log.Host.Room.
func (h *health) check() error {
	h.mu.Lock()
	sick := h.sick
	h.mu.Unlock()
	if err := h.room.check(); err != nil || sick == nil {
		return err
	}
	return fmt.Errorf("%w: %v: the store repairs itself when writes succeed again", log.ErrUnavailable, sick)
}

// fail reports a failed write. Appends are refused until mended is called.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sick = err
	h.n++
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// failures returns the number of failed writes so far.
func (h *health) failures() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// mended reports that the first n failed writes are mended. After a later one the store stays as it is.
func (h *health) mended(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == n {
		h.sick = nil
	}
}

// off is the server's message after it closed all streams by itself, because of a system error. It would open them only
// at its next start.
const off = "JetStream Shutdown"

// heard detects failed writes in the server's log, the only place where the server reports them.
func (h *health) heard(text string) {
	if strings.HasPrefix(text, "JetStream failed to store a msg on stream") || text == off {
		h.fail(errors.New(text))
	}
}

// mendPause is the time between attempts to mend a store.
const mendPause = 250 * time.Millisecond

// watch mends the store after each failed write, until ctx is done.
func (s *Server) watch(ctx context.Context) {
	for {
		select {
		case <-s.health.kick:
		case <-ctx.Done():
			return
		}
		for said := ""; ; {
			err := s.mend(ctx)
			if err == nil {
				break
			}
			if said != err.Error() {
				said = err.Error()
				s.logger.Warn("the store refuses appends", "dir", s.dir, "error", err)
			}
			select {
			case <-time.After(mendPause):
			case <-ctx.Done():
				return
			}
		}
	}
}

// mend makes the store take appends again.
func (s *Server) mend(ctx context.Context) error {
	n := s.health.failures()
	if err := s.health.room.check(); err != nil {
		return err
	}
	if s.unmarked.Load() {
		if err := s.writeMark(false); err != nil {
			return err
		}
		s.unmarked.Store(false)
	}
	err := s.events.Recover(ctx, func() error {
		if err := s.closeStreams(); err != nil {
			return err
		}
		var err error
		if s.blocks != nil {
			err = s.blocks.rewrite()
		}
		if err == nil && s.sync {
			err = wholeTree(s.dir)
		}
		return errors.Join(err, s.openStreams()) // even if the rewrite failed, as reads go on
	})
	if err != nil {
		return err
	}
	s.health.mended(n)
	s.logger.Info("the store accepts appends again", "dir", s.dir)
	return nil
}
