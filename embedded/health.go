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

// A write that the system refuses, for lack of room or because the disk is bad, leaves
// the server's stream answering nothing until it is opened anew; a sync that the
// system refuses leaves nobody knowing what is on the disk. Then appends are refused at
// once, reads go on, and when there is room again the streams are closed, what no sync
// is known to have covered is written anew, and the streams are opened.

// health says whether the store takes appends.
type health struct {
	room *room

	mu   sync.Mutex // guards what follows
	sick error      // why it takes none
	kick chan struct{}
}

func newHealth(r *room) *health { return &health{room: r, kick: make(chan struct{}, 1)} }

// check is the Room of a log.
func (h *health) check() error {
	h.mu.Lock()
	sick := h.sick
	h.mu.Unlock()
	if err := h.room.check(); err != nil || sick == nil {
		return err
	}
	return fmt.Errorf("%w: %v: the store mends itself when it can write again", log.ErrUnavailable, sick)
}

// fail says that something could not be written.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sick = err
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *health) mended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sick = nil
}

// off is what the server says when it has closed all streams by itself, after an error of
// the system: it would open them at its next start.
const off = "JetStream Shutdown"

// heard looks for the server's word that it could not write. It says it nowhere else.
func (h *health) heard(text string) {
	if strings.HasPrefix(text, "JetStream failed to store a msg on stream") || text == off {
		h.fail(errors.New(text))
	}
}

// mendEvery is the time between tries to mend a store.
const mendEvery = 250 * time.Millisecond

// watch mends the store whenever something could not be written, until ctx is done.
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
				s.logger.Warn("the store takes no appends", "dir", s.dir, "error", err)
			}
			select {
			case <-time.After(mendEvery):
			case <-ctx.Done():
				return
			}
		}
	}
}

// mend makes the store take appends again.
func (s *Server) mend(ctx context.Context) error {
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
		return errors.Join(err, s.openStreams()) // also if nothing was mended: reads go on
	})
	if err != nil {
		return err
	}
	s.health.mended()
	s.logger.Info("the store takes appends again", "dir", s.dir)
	return nil
}
