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

// store is a store that is opened again when the process that owned it is gone: another one
// owns it by then, or this one does. It is safe for concurrent use.
type store struct {
	open    opener
	err     io.Writer
	patient time.Duration // how long another one is looked for; 0: until ctx is done

	mu      sync.Mutex // guards st and unshown
	st      *tally.Store
	unshown error // the first error of a tree: its files do not show all that is stored
}

// opener opens the store: App.Open, or App.OpenExisting.
type opener = func(context.Context) (*tally.Store, error)

// openStore opens the store for a verb that lives longer than the owner may.
func openStore(ctx context.Context, a *cmdutil.App) (*store, error) {
	st, err := a.Open(ctx)
	return &store{open: a.Open, err: a.Err, st: st}, err
}

// patience is how long a verb that does one thing looks for a store that no process serves.
const patience = 30 * time.Second

// riding opens the store for a verb that does one thing, also if the owner ends meanwhile.
func riding(ctx context.Context, a *cmdutil.App, open opener, f func(*store) error) (err error) {
	st, err := open(ctx)
	if err != nil {
		return err
	}
	s := &store{open: open, err: a.Err, patient: patience, st: st}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// Close closes the store as it is open now. It returns the first error of a tree, with which a
// verb ends when its work is done.
func (s *store) Close() error {
	err := s.now().Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.unshown)
}

// isStored reports whether an append is in the log, and has an effect. It keeps the first error of
// a tree for Close.
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

// do calls f with the store, and once more with another one as long as nobody answers: what
// f writes has an id of its own, or says itself what became of it. An append that files of a tree
// do not show is one; Close returns the error of the tree.
func (s *store) do(ctx context.Context, f func(*tally.Store) error) error {
	return s.once(ctx, f, nil)
}

// once is do of something that is refused if it is done twice. A refusal behind an outcome
// that nobody knows is shown to own, which reports whether it is because f had done it.
func (s *store) once(ctx context.Context, f func(*tally.Store) error, own func(*tally.Store, error) bool) error {
	unknown, giveUp := false, time.Time{}
	for try := 0; ; try++ {
		st := s.now()
		err := f(st)
		switch {
		case s.isStored(err):
			return nil
		case unknown && own != nil && !isAway(err) && own(st, err):
			return nil
		case try == 0 && s.patient > 0:
			giveUp = time.Now().Add(s.patient)
		case try > 0 && !pause(ctx, pauseToOpen): // whatever is opened does not answer
			return err
		}
		unknown = unknown || errors.Is(err, log.ErrUnknown)
		if !s.again(ctx, st, err, giveUp) {
			return err
		}
	}
}

// again opens the store anew if err says that it does not answer, and st is the one that did
// not, up to a time, the zero time: for ever. It reports whether asking once more may help.
func (s *store) again(ctx context.Context, st *tally.Store, err error, giveUp time.Time) bool {
	over := func() bool { return !giveUp.IsZero() && time.Now().After(giveUp) }
	if ctx.Err() != nil || over() || !isAway(err) || len(st.Runners()) > 0 { // a store of one's own mends itself
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

// pauseToOpen is how long to wait before a store is looked for again.
const pauseToOpen = 100 * time.Millisecond

// isAway reports whether an error says that nobody answered.
func isAway(err error) bool {
	return !events.IsStored(err) && (errors.Is(err, log.ErrUnavailable) || errors.Is(err, log.ErrUnknown))
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
