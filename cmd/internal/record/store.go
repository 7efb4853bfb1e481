package record

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// store is a store that is opened again when its owner is gone. It implements ingest.Log.
type store struct {
	cmdutil.Reopening
	seen func(events.Subject, []events.Event, log.Ack, int) // called after an append with the number of new events
}

// start opens the store for the first time, before any other call. It is not opened again after the end of ctx.
func (s *store) start(ctx context.Context) error {
	s.Done = ctx.Done()
	if s.Store() != nil {
		return nil
	}
	st, err := s.Open(ctx)
	s.Use(st)
	return err
}

// errEnded is returned after the end of the command.
var errEnded = errors.New("the command ends")

func (s *store) again(ctx context.Context, st *tally.Store, err error) bool {
	return s.Again(ctx, st, err, time.Time{})
}

// lastWord is the time limit for running calls after the end of the command.
const lastWord = 5 * time.Second

// AppendSeries implements ingest.Log. Like every append it waits for the files of trees. An append that runs when ctx
// ends is completed, so that lines that were read are acknowledged.
func (s *store) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	st := s.Store()
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWord, cancel) })()
	ack, added, err := st.Log.AppendSeries(last, sub, expect, evs...)
	if !events.IsStored(err) {
		s.again(ctx, st, err)
		return ack, added, err // the caller repeats it
	}
	s.seen(sub, evs, ack, added)
	return ack, added, err
}

// Stamp implements ingest.Log.
func (s *store) Stamp(e events.Event) events.Event { return s.Store().Log.Stamp(e) }

// Last implements ingest.Log.
func (s *store) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	for {
		st := s.Store()
		rec, err := st.Log.Last(ctx, sub)
		if err == nil || !s.again(ctx, st, err) {
			return rec, err
		}
	}
}

// Now implements ingest.Log.
func (s *store) Now() time.Time { return s.Store().Log.Now() }

// Read implements ingest.Log. It continues after the last record that was read before the owner went.
func (s *store) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for s.read(ctx, &r, yield) {
		}
	}
}

// read reads to the end of the range, or until the store was reopened: then it returns true, and r is the remaining
// range.
func (s *store) read(ctx context.Context, r *events.Range, yield func(events.Record, error) bool) (again bool) {
	st := s.Store()
	for rec, err := range st.Log.Read(ctx, *r) {
		switch {
		case err != nil && cmdutil.IsAway(err):
			if s.again(ctx, st, err) {
				return true
			}
			yield(rec, err)
			return false
		case !yield(rec, err):
			return false
		case err == nil:
			r.After = rec.Offset
		}
	}
	return false
}

// Record implements ingest.Log.
func (s *store) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	for {
		st := s.Store()
		rec, err := st.Log.Record(ctx, at)
		if err == nil || !s.again(ctx, st, err) {
			return rec, err
		}
	}
}
