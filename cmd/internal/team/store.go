package team

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/log"
)

// store is a store that is opened again when the process that owned it is gone: another one
// owns it by then, or this one does. It is safe for concurrent use.
type store struct {
	open func(context.Context) (*tally.Store, error)
	err  io.Writer

	mu sync.Mutex
	st *tally.Store
}

// openStore opens the store for a verb that lives longer than the owner may.
func openStore(ctx context.Context, a *app.App) (*store, error) {
	st, err := a.Open(ctx)
	return &store{open: a.Open, err: a.Err, st: st}, err
}

// Close closes the store as it is open now.
func (s *store) Close() error { return s.now().Close() }

func (s *store) now() *tally.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

// do calls f with the store, and once more with another one as long as nobody answers: what
// f writes has an id of its own, or says itself what became of it.
func (s *store) do(ctx context.Context, f func(*tally.Store) error) error {
	for {
		st := s.now()
		if err := f(st); err == nil || !s.again(ctx, st, err) {
			return err
		}
	}
}

// again opens the store anew if err says that it does not answer, and st is the one that did
// not. It reports whether asking once more may help.
func (s *store) again(ctx context.Context, st *tally.Store, err error) bool {
	if ctx.Err() != nil || !isAway(err) || len(st.Runners()) > 0 { // a store of one's own mends itself
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st != st {
		return true
	}
	for said := false; ; said = true {
		next, err := s.open(ctx)
		switch {
		case err == nil:
			_ = st.Close() // it is lost already
			s.st = next
			return true
		case cli.ExitCode(err) != cli.Unreachable:
			return false
		case !said:
			fmt.Fprintln(s.err, "the store does not answer: waiting for it")
		}
		if !pause(ctx, pauseToOpen) {
			return false
		}
	}
}

// pauseToOpen is how long to wait before a store is looked for again.
const pauseToOpen = 100 * time.Millisecond

// isAway reports whether an error says that nobody answered.
func isAway(err error) bool {
	return errors.Is(err, log.ErrUnavailable) || errors.Is(err, log.ErrUnknown)
}

// pause waits, and reports whether ctx lasted that long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
