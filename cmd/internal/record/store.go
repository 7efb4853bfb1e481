package record

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// store is a store that is reopened when its owner is gone: another process or this one owns it then. It implements
// ingest.Log.
type store struct {
	open func(context.Context) (*tally.Store, error)        // nil: the caller owns the store and closes it
	done <-chan struct{}                                    // end of the user: the store is not reopened afterwards
	seen func(events.Subject, []events.Event, log.Ack, int) // called after an append with the number of new events

	mu sync.Mutex
	st *tally.Store
}

// start opens the store for the first time, before any other call.
func (s *store) start(ctx context.Context) (err error) {
	s.done = ctx.Done()
	if s.st == nil {
		s.st, err = s.open(ctx)
	}
	return err
}

// errEnded is returned after the end of the command.
var errEnded = errors.New("the command ends")

// now returns the open store.
func (s *store) now() *tally.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

// Close closes the store if it is open.
func (s *store) Close() error {
	if st := s.now(); st != nil && s.open != nil {
		return st.Close()
	}
	return nil
}

// again reopens the store if err says that it does not answer and st is that store. It reports whether a repeated call
// may succeed.
func (s *store) again(ctx context.Context, st *tally.Store, err error) bool {
	if s.open == nil || !cmdutil.IsAway(err) || len(st.Runners()) > 0 { // a store that this process owns repairs itself
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st != st {
		return true
	}
	for {
		next, err := s.open(ctx)
		switch {
		case err == nil:
			_ = st.Close() // the store is lost already
			s.st = next
			return true
		case cli.ExitCode(err) != cli.Unreachable:
			return false
		}
		select {
		case <-time.After(pauseToOpen):
		case <-ctx.Done():
			return false
		case <-s.done:
			return false
		}
	}
}

// pauseToOpen is the pause before a second attempt to open the store.
const pauseToOpen = 100 * time.Millisecond

// lastWord is the time limit for running calls after the end of the command.
const lastWord = 5 * time.Second

// AppendSeries implements ingest.Log. Like every append it waits for the files of trees. An append that runs when ctx
// ends is completed, so that lines that were read are acknowledged.
func (s *store) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	st := s.now()
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
func (s *store) Stamp(e events.Event) events.Event { return s.now().Log.Stamp(e) }

// Last implements ingest.Log.
func (s *store) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	for {
		st := s.now()
		rec, err := st.Log.Last(ctx, sub)
		if err == nil || !s.again(ctx, st, err) {
			return rec, err
		}
	}
}

// Now implements ingest.Log.
func (s *store) Now() time.Time { return s.now().Log.Now() }

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
	st := s.now()
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
		st := s.now()
		rec, err := st.Log.Record(ctx, at)
		if err == nil || !s.again(ctx, st, err) {
			return rec, err
		}
	}
}
