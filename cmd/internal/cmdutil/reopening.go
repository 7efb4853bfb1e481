package cmdutil

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
)

// Opener opens the store: App.Open or App.OpenExisting.
type Opener = func(context.Context) (*tally.Store, error)

// Reopening is a store that is opened again when its owner is gone: another process or this one owns it then. It is
// safe for concurrent use.
type Reopening struct {
	Open Opener          // nil: the caller owns the store and closes it
	Err  io.Writer       // is told once that the store does not answer; nil: nobody is
	Done <-chan struct{} // the store is not opened again after it is closed; nil: always

	mu sync.Mutex // guards st
	st *tally.Store
}

// Use sets the open store, before any other call.
func (s *Reopening) Use(st *tally.Store) { s.st = st }

// Store returns the open store, or nil.
func (s *Reopening) Store() *tally.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

// Close closes the open store.
func (s *Reopening) Close() error {
	if st := s.Store(); st != nil && s.Open != nil {
		return st.Close()
	}
	return nil
}

// Again opens the store again if err says that it does not answer and st is that store. It tries until giveUp, or
// forever if giveUp is zero. It reports whether a repeated call may succeed.
func (s *Reopening) Again(ctx context.Context, st *tally.Store, err error, giveUp time.Time) bool {
	over := func() bool { return !giveUp.IsZero() && time.Now().After(giveUp) }
	if s.Open == nil || ctx.Err() != nil || over() || !IsAway(err) || len(st.Runners()) > 0 { // a store that this process owns repairs itself
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st != st {
		return true
	}
	for told := s.Err == nil; ; {
		next, err := s.Open(ctx)
		switch {
		case err == nil:
			_ = st.Close() // the store is lost already
			s.st = next
			return true
		case cli.ExitCode(err) != cli.Unreachable, over():
			return false
		case !told:
			told = true
			fmt.Fprintln(s.Err, "the store does not answer: waiting for it")
		}
		select {
		case <-time.After(PauseToOpen):
		case <-ctx.Done():
			return false
		case <-s.Done:
			return false
		}
	}
}

// PauseToOpen is the pause before a second attempt to open the store.
const PauseToOpen = 100 * time.Millisecond
