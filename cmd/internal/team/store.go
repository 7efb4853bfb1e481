package team

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// store is a store that is opened again when its owner is gone. It is safe for concurrent use.
type store struct {
	cmdutil.Reopening
	patient time.Duration // time limit for opening it again; 0: until ctx is done

	mu      sync.Mutex // guards unshown
	unshown error      // the first error of a tree that does not show a stored record
}

// openStore opens the store for a command that may outlive the owner.
func openStore(ctx context.Context, a *cmdutil.App) (*store, error) {
	st, err := a.Open(ctx)
	return newStore(a.Open, a.Err, st), err
}

func newStore(open cmdutil.Opener, errw io.Writer, st *tally.Store) *store {
	s := &store{Reopening: cmdutil.Reopening{Open: open, Err: errw}}
	s.Use(st)
	return s
}

// patience is the time limit for reopening, for a command that makes one change.
const patience = 30 * time.Second

// riding opens the store for a command that makes one change, and continues if the owner ends meanwhile.
func riding(ctx context.Context, a *cmdutil.App, open cmdutil.Opener, f func(*store) error) (err error) {
	st, err := open(ctx)
	if err != nil {
		return err
	}
	s := newStore(open, a.Err, st)
	s.patient = patience
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// Close closes the open store. It returns the first error of a tree, which is the error of a command whose work is
// done.
func (s *store) Close() error {
	err := s.Reopening.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.unshown)
}

// isStored reports whether an append is in the log and in effect. It keeps the first error of a tree for Close.
func (s *store) isStored(err error) bool {
	if cli.Is[*tally.FencedError](err) || !events.IsStored(err) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unshown == nil {
		s.unshown = err
	}
	return true
}

// do calls f with the store. If the store does not answer, it reopens the store and repeats the call. The changes of f
// must be idempotent. An append that a tree does not show counts as done; Close returns the error of the tree.
func (s *store) do(ctx context.Context, f func(*tally.Store) error) error {
	return s.once(ctx, f, nil)
}

// once is do for a change that fails if it is repeated. If such an error follows an unknown outcome, own reports
// whether the first call had made the change.
func (s *store) once(ctx context.Context, f func(*tally.Store) error, own func(*tally.Store, error) bool) error {
	unknown, giveUp := false, time.Time{}
	for attempt := 0; ; attempt++ {
		st := s.Store()
		err := f(st)
		switch {
		case s.isStored(err):
			return nil
		case unknown && own != nil && !cmdutil.IsAway(err) && own(st, err):
			return nil
		case attempt == 0 && s.patient > 0:
			giveUp = time.Now().Add(s.patient)
		case attempt > 0 && !pause(ctx, cmdutil.PauseToOpen): // the reopened store does not answer either
			return err
		}
		unknown = unknown || errors.Is(err, log.ErrUnknown)
		if !s.Again(ctx, st, err, giveUp) {
			return err
		}
	}
}

// pause waits, and reports whether ctx was not done meanwhile.
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
