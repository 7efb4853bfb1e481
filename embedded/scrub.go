package embedded

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/log"
)

// scrubRate bounds how many bytes per second are checked while the store is in use.
const scrubRate = 128 << 20

// scrubTries bounds the attempts to repair a block. A server that reads a damaged block discards the rest of it.
const scrubTries = 3

// scrub checks blocks that were not checked before the server opened them. The server verifies each record that it
// reads, except for the sequence. A sequence far ahead makes it allocate memory without bound. So scrub repairs such a
// block at once.
func (s *Server) scrub(ctx context.Context, blocks []examined) {
	var buffer []byte
	for _, b := range blocks {
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		for range scrubTries {
			err := s.scrubBlock(ctx, &b, &buffer)
			if err == nil || ctx.Err() != nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			s.logger.Error("a block cannot be checked", "stream", b.name, "block", b.number, "error", err)
			rest(ctx, mendPause)
		}
		pace := time.Duration(len(b.data)) * time.Second / scrubRate
		rest(ctx, pace-time.Since(began))
	}
}

// rest waits for a time, or until ctx is done.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// scrubBlock checks a block. If it is damaged, scrubBlock repairs it as far as possible.
func (s *Server) scrubBlock(ctx context.Context, b *examined, buffer *[]byte) error {
	x := s.examination()
	x.known, x.buffer = s.events.Holes(), *buffer
	sound, err := x.sound(b)
	*buffer = x.buffer
	switch {
	case err != nil:
		return err
	case sound:
		s.events.Lose(x.lost)
		_ = s.reportDamage(x) // a list that cannot be written now is written later
		return nil
	}
	if err := s.repair(ctx, x, *b); err != nil {
		return err
	}
	if b.read() == nil {
		x.leave(b)
		_ = s.meet(ctx, x.left)
	}
	return nil
}

// meet reads records that the server cannot read. So the log knows them as lost before it answers questions about their
// subjects; the server's last sequence and counts skip them.
func (s *Server) meet(ctx context.Context, records []events.Offset) error {
	ctx = log.NoteDamage(ctx, nil) // no caller depends on them yet
	for _, at := range records {
		_, _ = s.events.Record(ctx, at) // the log notes the error
	}
	return s.found.now()
}

// misled reports whether the server counts records of a stream as deleted that are not known to be lost. This happens
// after it read a block with a sequence far ahead.
func (s *Server) misled(name string, known []log.Hole) (bool, error) {
	open, err := s.streams()
	for _, stream := range open {
		if stream.Name != name {
			continue
		}
		deleted := stream.State.NumDeleted
		for _, h := range known {
			if at := uint64(h.Offset); stream.State.FirstSeq <= at && at <= stream.State.LastSeq {
				deleted--
			}
		}
		return deleted > 0, nil
	}
	return false, err
}

// repair repairs a damaged block as far as possible, while the server has its streams closed. The streams are closed
// when everything is written except for the block: on opening them the server would discard much of the damaged block.
// Reads report the remaining damage.
func (s *Server) repair(ctx context.Context, x *examination, b examined) error {
	if err := b.read(); err != nil {
		return err
	}
	if !slices.ContainsFunc(b.gaps, func(g natsfile.Gap) bool { _, _, framed := x.span(&b, g); return g.Bit >= 0 || !framed }) {
		s.logger.Error("a block is damaged: tally verify lists the lost records", "dir", s.dir, "stream", b.name, "block", b.number)
		return nil
	}
	err := s.events.AtRest(ctx, func() error {
		if err := b.read(); err != nil { // it may have been replaced meanwhile
			return err
		}
		misled, err := s.misled(b.name, x.known)
		if err != nil {
			return err
		}
		closed := false
		x.close = func() error {
			if closed {
				return nil
			}
			closed = true
			return s.closeStreams()
		}
		if _, err = x.block(&b, false); err == nil && misled {
			err = errors.Join(x.close(), b.forgetIndex()) // the server writes it on closing
		}
		if !closed {
			return err
		}
		return errors.Join(err, s.openStreams())
	})
	s.events.Lose(x.lost)
	_ = s.reportDamage(x)
	return err
}
