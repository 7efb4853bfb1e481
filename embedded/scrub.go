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

// scrubRate is how many bytes of the store are looked through in a second, while it is
// in use.
const scrubRate = 128 << 20

// scrub looks through blocks, such as those for which there was no time before the server
// opened them. What the server reads in a block it checks record by record, but for the
// sequence: for one that seems far ahead it takes memory without bound. So a block in
// which there is such a one is put right as soon as it is known.
func (s *Server) scrub(ctx context.Context, blocks []examined) {
	var buffer []byte
	for _, b := range blocks {
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		x := s.examination()
		x.known, x.buffer = s.events.Holes(), buffer
		sound, err := x.sound(&b)
		buffer = x.buffer
		switch {
		case err == nil && !sound:
			if err = s.repair(ctx, x, b); err == nil && b.read() == nil {
				x.leave(&b)
				s.meet(ctx, x.left)
			}
		case err == nil:
			s.events.Lose(x.lost)
			err = s.reportDamage(x)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
			s.logger.Error("a block cannot be looked through", "stream", b.name, "block", b.number, "error", err)
		}
		pace := time.Duration(len(b.data)) * time.Second / scrubRate
		select {
		case <-time.After(pace - time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

// meet reads records that the server cannot read, so that the log knows that they are lost
// before it answers for their subjects: Last and a count of the server pass over them.
func (s *Server) meet(ctx context.Context, records []events.Offset) {
	ctx = log.NoteDamage(ctx, nil) // no answer rests on them yet
	for _, at := range records {
		_, _ = s.events.Record(ctx, at) // the error is what the log notes
	}
	s.found.now()
}

// misled reports whether the server takes records of a stream for deleted that nobody
// knows to be lost: it read a block with a sequence far ahead.
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

// repair puts a damaged block right, as far as that is possible, while the server has
// closed it. Other damage is left for reads to find: they report it.
func (s *Server) repair(ctx context.Context, x *examination, b examined) error {
	if err := b.read(); err != nil {
		return err
	}
	if !slices.ContainsFunc(b.gaps, func(g natsfile.Gap) bool { _, _, clear := x.place(&b, g); return g.Bit >= 0 || !clear }) {
		s.logger.Error("a block is damaged: verify says what is missing", "dir", s.dir, "stream", b.name, "block", b.number)
		return nil
	}
	err := s.events.AtRest(ctx, func() error {
		misled, err := s.misled(b.name, x.known)
		if err == nil {
			err = s.closeStreams()
		}
		if err != nil {
			return err
		}
		if _, err = x.block(&b, false); err == nil && misled {
			err = b.forgetIndex() // it was written just now
		}
		return errors.Join(err, s.openStreams())
	})
	s.events.Lose(x.lost)
	return errors.Join(err, s.reportDamage(x))
}
