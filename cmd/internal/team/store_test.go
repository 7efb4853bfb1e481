package team

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
)

// If a change fails because it was made before, after an unknown outcome, it counts as done. After an error that says
// that nothing was written it does not.
func TestOnce(t *testing.T) {
	there := errors.New("it is there")
	for name, c := range map[string]struct {
		says []error // one error for each call
		want error
	}{
		"unknown, then there":     {[]error{log.ErrUnknown, there}, nil},
		"unknown, then done":      {[]error{log.ErrUnknown, nil}, nil},
		"not written, then there": {[]error{log.ErrUnavailable, there}, there},
		"unknown, away, there":    {[]error{log.ErrUnknown, log.ErrUnavailable, there}, nil},
		"there":                   {[]error{there}, there},
		"another error":           {[]error{log.ErrUnknown, io.ErrUnexpectedEOF}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			s, opened := reopened(t, time.Minute)
			calls, last := 0, (*tally.Store)(nil)
			err := s.once(t.Context(), func(st *tally.Store) error {
				if st == last {
					t.Error("the change was sent again to a store that does not answer")
				}
				last = st
				calls++
				return c.says[calls-1]
			}, func(_ *tally.Store, err error) bool { return errors.Is(err, there) })
			if !errors.Is(err, c.want) || calls != len(c.says) || *opened != calls-1 {
				t.Errorf("after %d calls and %d stores: got %v", calls, *opened, err)
			}
		})
	}
}

// An append that a tree does not show is done and not repeated: the command prints what it stored, and ends with the
// first error of the tree.
func TestOnceUnshown(t *testing.T) {
	first, second := &events.TreeError{Tree: "t", Err: log.ErrUnavailable}, &events.TreeError{Tree: "t", Err: log.ErrUnknown}
	s, opened := reopened(t, time.Minute)
	calls := 0
	for _, says := range []error{first, second, nil} {
		err := s.do(t.Context(), func(*tally.Store) error {
			calls++
			return says
		})
		if err != nil {
			t.Errorf("B-41 a stored change is not done: %v", err)
		}
	}
	late := errors.Join(&tally.FencedError{}, first)
	if err := s.do(t.Context(), func(*tally.Store) error { return late }); err != late {
		t.Errorf("B-41 a fenced change counts as done: %v", err)
	}
	if calls != 3 || *opened != 0 {
		t.Errorf("B-41 got %d calls and %d opened stores", calls, *opened)
	}
	if err := s.Close(); !errors.Is(err, first) || errors.Is(err, second) {
		t.Errorf("B-41 the verb: got %v", err)
	}
}

// A store that opens and never answers is not waited for forever.
func TestOnceGivesUp(t *testing.T) {
	s, _ := reopened(t, time.Millisecond)
	if err := s.do(t.Context(), func(*tally.Store) error { return log.ErrUnavailable }); !errors.Is(err, log.ErrUnavailable) {
		t.Error(err)
	}
}

// reopened returns a store that is a new one each time it is opened, and the number of times.
func reopened(t *testing.T, patient time.Duration) (*store, *int) {
	opened := 0
	open := func(ctx context.Context) (*tally.Store, error) {
		opened++
		return tally.Open(ctx, logtest.Open(t), tally.Config{})
	}
	st, err := tally.Open(t.Context(), logtest.Open(t), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(open, io.Discard, st)
	s.patient = patient
	t.Cleanup(func() { _ = s.Close() })
	return s, &opened
}
