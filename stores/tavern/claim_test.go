package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// claimed returns, for each kind of object with one holder, a function that claims it.
func claimed(t *testing.T, st *tally.Store) map[string]func(holder string) *tally.Claim {
	ctx := t.Context()
	flowTemplates(t, st)
	queue := func(id string, serial bool) func(string) *tally.Claim {
		q := tavern.QueueOf(st, id)
		must(t, q.Create(ctx, tavern.QueueSettings{Lease: time.Hour, Serial: serial}))
		need(q.EnqueueMany(ctx, tavern.Item{ID: "a"}))
		return func(holder string) *tally.Claim { return need(q.TryClaim(ctx, holder)).Claim }
	}
	a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "Ann"}))
	f := flowStart(t, st, "release", "claimed")
	return map[string]func(holder string) *tally.Claim{
		"item":           queue("apart", false),
		"item in series": queue("series", true),
		"flow":           func(holder string) *tally.Claim { return need(f.Claim(ctx, holder, time.Hour)).Claim },
		"agent":          func(holder string) *tally.Claim { return need(a.Lease(ctx, holder, time.Hour)) },
		"document": func(holder string) *tally.Claim {
			return need(st.Documents().Lease(ctx, "doc", "a", holder, time.Hour))
		},
	}
}

// Every kind of claim is renewed, adds its fence to its holder's other appends, and is refused everywhere after another
// holder's later claim.
func TestClaims(t *testing.T) {
	st, clock := queueStore(t)
	for name, claim := range claimed(t, st) {
		t.Run(name, func(t *testing.T) {
			ctx, work := t.Context(), st.Session("work/"+name)
			c := claim("first")
			appends := func(c *tally.Claim) error {
				e := need(events.New(st.Source(), work.Subject(), &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: []byte(`1`)}}}))
				_, err := c.Append(ctx, log.Part{Subject: work.Subject(), Expect: log.Any, Events: []events.Event{e}})
				return err
			}
			written := func() uint64 { return uint64(need(st.Log.Head(ctx))) }
			must(t, appends(c))
			queueJump(t, st, clock, 30*time.Second)
			if until := need(c.Renew(ctx)); !until.After(c.Until) || until.After(c.Until.Add(time.Minute)) {
				t.Errorf("the lease after a renewal ends at %v, before it at %v", until, c.Until)
			}
			must(t, appends(c))
			part := need(c.Part(ctx))
			queueJump(t, st, clock, 2*time.Hour)
			must(t, appends(c)) // its lease has ended, and no other holder has it

			second := claim("second")
			before := written()
			for what, do := range map[string]func() error{"an append": func() error { return appends(c) }, "a renewal": func() error { _, err := c.Renew(ctx); return err },
				"a release": func() error { return c.Release(ctx) }, "a part": func() error { _, err := c.Part(ctx); return err }} {
				fenced, ok := errors.AsType[*tally.FencedError](do())
				if !ok || fenced.Fence != c.Fence || fenced.Have != second.Fence && fenced.Have != 0 || fenced.Holder != "second" || !errors.Is(fenced, log.ErrConflict) {
					t.Errorf("%s of a lost claim: %+v", what, fenced)
				}
			}
			if _, err := st.AppendAll(ctx, part, log.Part{Subject: work.Subject(), Events: []events.Event{{Type: "test"}}}); !errors.Is(err, log.ErrConflict) && !errors.Is(err, log.ErrGuard) {
				t.Errorf("append a part with a lost claim: %v", err)
			}
			if after := written(); after != before || second.Fence <= c.Fence {
				t.Errorf("refused calls wrote %d records; the fences are %v and %v", after-before, c.Fence, second.Fence)
			}
			must(t, appends(second))
			must(t, second.Release(ctx))
			if _, err := second.Renew(ctx); !errors.Is(err, log.ErrConflict) {
				t.Errorf("renew a released claim: %v", err)
			}
			must(t, appends(claim("third")))
		})
	}
}

// If files do not show a stored claim or item, the call returns it with an error, and it is stored once.
func TestClaimsShown(t *testing.T) {
	var answer error
	st := storetest.Memory(t, tally.Config{Host: tally.Host{Shows: func(context.Context, events.Offset, ...events.Subject) error { return answer }}})
	ctx, q := queueSoon(t), tavern.QueueOf(st, "q")
	flowTemplates(t, st)
	answer = &events.TreeError{Tree: "t", Err: errors.New("full")}
	unshown := func(what string, ok bool, err error) {
		t.Helper()
		if !ok || !errors.Is(err, answer) {
			t.Errorf("%s: returned %v, error %v", what, ok, err)
		}
	}
	it, err := q.Enqueue(ctx, tavern.Item{})
	unshown("an item", it.Offset != 0, err)
	it, err = q.Enqueue(ctx, tavern.Item{ID: "named"})
	unshown("an item with an id", it.Offset != 0, err)
	many := make([]tavern.Item, 501)
	many, err = q.EnqueueMany(ctx, many...)
	unshown("many items", len(many) == 501, err)
	c, err := q.TryClaim(ctx, "w")
	unshown("a claim", c != nil && c.Fence != 0, err)
	until, err := c.Renew(ctx)
	unshown("a renewal", until.After(c.Until.Add(-time.Minute)), err)
	unshown("a result", true, c.Finish(ctx, []byte("1")))
	unshown("the same result", true, c.Finish(ctx, []byte("1")))
	c, err = q.Next(ctx, "w")
	unshown("the next claim", c != nil && c.Item.ID == "named", err)
	unshown("a release", true, c.Release(ctx))
	if counts := need(q.Counts(ctx)); counts[tavern.ItemReady] != 502 {
		t.Errorf("the counts are %v", counts)
	}
	a, err := tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "Ann"})
	unshown("an agent", a != nil, err)
	l, err := a.Lease(ctx, "w", time.Hour)
	unshown("its lease", l != nil && l.Holder == "w", err)
	l, err = st.Documents().Lease(ctx, "doc", "a", "w", time.Hour)
	unshown("the lease on a document", l != nil && l.Holder == "w", err)
	answer = nil
	f := flowStart(t, st, "release", "shown")
	answer = &events.TreeError{Tree: "t", Err: errors.New("full")}
	fc, err := f.Claim(ctx, "w", time.Hour)
	unshown("a flow", fc != nil && fc.Fence != 0, err)

	// Items that are queued together are stored once, whatever their files show.
	apart := tavern.QueueOf(st, "together")
	done := make(chan error, 100)
	for n := range 100 {
		go func() {
			_, err := apart.Enqueue(ctx, tavern.Item{Body: fmt.Append(nil, n)})
			done <- err
		}()
	}
	for range 100 {
		unshown("an item beside others", true, heard(t, done, "the answer about an item beside others"))
	}
	if counts := need(apart.Counts(ctx)); counts[tavern.ItemReady] != 100 {
		t.Errorf("the counts of 100 items are %v", counts)
	}
}
