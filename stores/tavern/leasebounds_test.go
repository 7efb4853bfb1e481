package tavern_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// takes are the ways to take a thing for a minute.
var takes = map[string]func(t *testing.T, st *tally.Store) (take func(worker string) (*tally.Claim, error)){
	"an item":                   func(t *testing.T, st *tally.Store) func(string) (*tally.Claim, error) { return takeItem(t, st, false) },
	"an item of a serial queue": func(t *testing.T, st *tally.Store) func(string) (*tally.Claim, error) { return takeItem(t, st, true) },
	"a flow": func(t *testing.T, st *tally.Store) func(string) (*tally.Claim, error) {
		need(tavern.WorkflowsOf(st).Create(t.Context(), "again", []byte(template2)))
		f := need(tavern.WorkflowsOf(st).Start(t.Context(), "again", tavern.FlowOptions{ID: "f"}))
		return func(worker string) (*tally.Claim, error) {
			c, err := f.Claim(t.Context(), worker, time.Minute)
			if err != nil {
				return nil, err
			}
			return c.Claim, nil
		}
	},
	"an agent": func(t *testing.T, st *tally.Store) func(string) (*tally.Claim, error) {
		a := need(tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{ID: daemonAgent(1), Name: "x"}))
		return func(worker string) (*tally.Claim, error) { return a.Lease(t.Context(), worker, time.Minute) }
	},
}

func takeItem(t *testing.T, st *tally.Store, serial bool) func(worker string) (*tally.Claim, error) {
	q := tavern.QueueOf(st, "q")
	must(t, q.Create(t.Context(), tavern.QueueSettings{Lease: time.Minute, Serial: serial}))
	need(q.Enqueue(t.Context(), tavern.Item{ID: "i"}))
	return func(worker string) (*tally.Claim, error) {
		c, err := q.TryClaim(t.Context(), worker)
		if err != nil {
			return nil, err
		}
		return c.Claim, nil
	}
}

func TestLeaseBounds(t *testing.T) {
	for name, begin := range takes {
		t.Run("net Q3 the lease on "+name+" is over at exactly its end", func(t *testing.T) {
			for _, early := range []time.Duration{time.Second, time.Millisecond, 0, -time.Second} {
				onFakeClock(t, func(t *testing.T, st *tally.Store) {
					take := begin(t, st)
					c := need(take("ann"))
					time.Sleep(30 * time.Second)
					until := need(c.Renew(t.Context()))
					time.Sleep(time.Until(until) - early)
					_, err := take("bob")
					_, isEmpty := errors.AsType[*tavern.EmptyError](err)
					if isHeld := isEmpty || errors.Is(err, log.ErrConflict); isHeld != (early > 0) || err != nil && !isHeld {
						t.Errorf("%v before the end: %v", early, err)
					}
					if _, err := c.Renew(t.Context()); (err == nil) != (early > 0) {
						t.Errorf("%v before the end, another worker asked, and the holder renews: %v", early, err)
					}
				})
			}
		})
	}
	t.Run("net Q1 a worker that waits has an item at the end of its lease", func(t *testing.T) {
		for _, serial := range []bool{false, true} {
			onFakeClock(t, func(t *testing.T, st *tally.Store) {
				until := need(takeItem(t, st, serial)("ann")).Until
				need(tavern.QueueOf(st, "q").Next(t.Context(), "bob"))
				if late := time.Since(until); late < 0 || late > 2*time.Millisecond {
					t.Errorf("a serial queue: %v: the next worker had the item %v after the end", serial, late)
				}
			})
		}
	})
}
