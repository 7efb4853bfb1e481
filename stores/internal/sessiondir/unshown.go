package sessiondir

import (
	"context"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
)

// stored is a target that treats an append as successful if only the trees of files could not show it. The import
// reports that at its end.
type stored struct {
	layouts.Target

	mu  sync.Mutex
	err error // the first error
}

// pass keeps the first error of this kind and returns nil for it. It returns other errors.
func (s *stored) pass(err error) error {
	if err == nil || !events.IsStored(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	return nil
}

// report adds the kept error to the problems of an import.
func (s *stored) report(r *layouts.Report) {
	if s.err != nil {
		r.Problems = append(r.Problems, layouts.Problem{Reason: s.err.Error()})
	}
}

// Append implements layouts.Target.
func (s *stored) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ack, err := s.Target.Append(ctx, sub, expect, evs...)
	return ack, s.pass(err)
}

// AppendSeries implements layouts.Target.
func (s *stored) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ack, added, err := s.Target.AppendSeries(ctx, sub, expect, evs...)
	return ack, added, s.pass(err)
}

// AppendAll appends to several subjects as appendAll does.
func (s *stored) AppendAll(ctx context.Context, parts ...log.Part) ([]log.Ack, error) {
	acks, err := appendAll(ctx, s.Target, parts)
	return acks, s.pass(err)
}
