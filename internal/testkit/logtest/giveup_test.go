package logtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// A publication stops before it is stored and before its answer. If its ctx ends meanwhile, it is stored all the same.
func TestGate(t *testing.T) {
	for name, deaf := range map[string]bool{"a gate": false, "a deaf gate": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memlog.New(memlog.Config{})
				g := &logtest.Gate{Backend: mem, Deaf: deaf}
				g.Shut()
				ctx, cancel := context.WithCancel(t.Context())
				answered := make(chan error, 1)
				go func() {
					_, err := g.Publish(ctx, log.Publication{Writes: []log.Write{{Subject: "s", Messages: []log.Outgoing{{ID: "1"}}}}})
					answered <- err
				}()
				want := func(waiting int, stored events.Offset, over bool) {
					t.Helper()
					synctest.Wait()
					if st, err := mem.State(t.Context()); err != nil || st.Last != stored || g.Waiting() != waiting || (len(answered) > 0) != over {
						t.Errorf("%d wait, %v are stored, %d answers; %v", g.Waiting(), st.Last, len(answered), err)
					}
				}
				want(1, 0, false)
				cancel()
				want(1, 0, !deaf)
				g.Let(0)
				want(1, 1, !deaf)
				g.Open()
				want(0, 1, true)
				if err := <-answered; deaf && err != nil || !deaf && !errors.Is(err, log.ErrUnknown) {
					t.Errorf("the answer is %v", err)
				}
			})
		})
	}
}

// liar is a backend that answers without storing.
type liar struct {
	*memlog.Backend
	lies bool
}

func (l *liar) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if l.lies {
		return log.Receipt{Last: 77}, nil
	}
	return l.Backend.Publish(ctx, p)
}

// A Crowd finds nothing wrong with a log in order, and reports what a wrong one does.
func TestCrowd(t *testing.T) {
	for name, want := range map[string]string{"in order": "", "not stored": "call 0 to a: it is acknowledged, and not stored"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &liar{memlog.New(memlog.Config{}), false}
				g := &logtest.Gate{Backend: b}
				l, err := log.OpenOn(t.Context(), g, log.Config{})
				if err != nil {
					t.Fatal(err)
				}
				c := &logtest.Crowd{Log: l, Gate: g}
				defer c.Drop()
				a := events.Session("", "a")
				b.lies = want != ""
				one, two := logtest.Call{Subjects: []events.Subject{a}}, logtest.Call{Subjects: []events.Subject{a, events.Session("", "b")}, Each: 2}
				err = c.Begin(one)
				b.lies = false
				g.Shut()
				err = errors.Join(err, c.Begin(one), c.Begin(one), c.Begin(two), c.Begin(logtest.Call{Subjects: two.Subjects, Late: true}))
				if got := len(c.Undecided()); got != 3 {
					t.Errorf("%d calls are under way, want 3", got)
				}
				err = errors.Join(err, c.GiveUp(2), c.Let(0), c.Finish())
				if got := strings.TrimSpace(errorText(err)); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				l.Close()
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
