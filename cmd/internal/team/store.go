package team

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// store is a store that is reopened when its owner is gone: another process or this one owns it then. It is safe for
// concurrent use.
type store struct {
	open    opener
	err     io.Writer
	patient time.Duration // time limit for reopening; 0: until ctx is done

	mu      sync.Mutex // guards st and unshown
	st      *tally.Store
	unshown error // the first error of a tree that does not show a stored record
}

// opener opens the store: App.Open or App.OpenExisting.
type opener = func(context.Context) (*tally.Store, error)

// openStore opens the store for a command that may outlive the owner.
func openStore(ctx context.Context, a *cmdutil.App) (*store, error) {
	st, err := a.Open(ctx)
	return &store{open: a.Open, err: a.Err, st: st}, err
}

// patience is the time limit for reopening, for a command that makes one change.
const patience = 30 * time.Second

// riding opens the store for a command that makes one change, and continues if the owner ends meanwhile.
func riding(ctx context.Context, a *cmdutil.App, open opener, f func(*store) error) (err error) {
	st, err := open(ctx)
	if err != nil {
		return err
	}
	s := &store{open: open, err: a.Err, patient: patience, st: st}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// Close closes the open store. It returns the first error of a tree, which is the error of a command whose work is
// done.
func (s *store) Close() error {
	err := s.now().Close()
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

func (s *store) now() *tally.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
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
		st := s.now()
		err := f(st)
		switch {
		case s.isStored(err):
			return nil
		case unknown && own != nil && !cmdutil.IsAway(err) && own(st, err):
			return nil
		case attempt == 0 && s.patient > 0:
			giveUp = time.Now().Add(s.patient)
		case attempt > 0 && !pause(ctx, pauseToOpen): // the reopened store does not answer either
			return err
		}
		unknown = unknown || errors.Is(err, log.ErrUnknown)
		if !s.again(ctx, st, err, giveUp) {
			return err
		}
	}
}

// again reopens the store if err says that it does not answer and st is that store. It tries until giveUp, or forever
// if giveUp is zero. It reports whether a repeated call may succeed.
func (s *store) again(ctx context.Context, st *tally.Store, err error, giveUp time.Time) bool {
	over := func() bool { return !giveUp.IsZero() && time.Now().After(giveUp) }
	if ctx.Err() != nil || over() || !cmdutil.IsAway(err) || len(st.Runners()) > 0 { // a store that this process owns repairs itself
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
			_ = st.Close() // the store is lost already
			s.st = next
			return true
		case cli.ExitCode(err) != cli.Unreachable, over():
			return false
		case !said:
			fmt.Fprintln(s.err, "the store does not answer: waiting for it")
		}
		if !pause(ctx, pauseToOpen) {
			return false
		}
	}
}

// pauseToOpen is the pause before a second attempt to open the store.
const pauseToOpen = 100 * time.Millisecond

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
