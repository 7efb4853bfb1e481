package tavern_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// restMem outlives the logs on it.
type restMem struct{ *memlog.Backend }

func (restMem) Close() error { return nil }

// A lease in a store that was idle has its full length, whatever the clock of the holder shows. The log's time is that
// of its last record, and the claim is dated by the clock of the process that stores it. The same holds for the time of
// a receiver's refusal.
func TestLeaseAfterRest(t *testing.T) {
	clock := new(queueClock)
	mem := memlog.New(memlog.Config{Now: clock.now})
	begin := func(wrong time.Duration) *tally.Store {
		l := need(log.OpenOn(t.Context(), restMem{mem}, log.Config{Now: func() time.Time { return clock.now().Add(wrong) }}))
		st := need(tally.Open(t.Context(), l, tally.Config{}))
		t.Cleanup(func() { must(t, st.Close()) })
		return st
	}
	st, ctx := begin(0), t.Context()
	q := tavern.QueueOf(st, "q")
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: time.Minute}))
	flowTemplates2(t, st)
	a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "Ann"}))
	told := inboxSend(t, st, a.ID(), inboxNote(a.ID(), "hello"))
	for n := range 3 {
		need(q.Enqueue(ctx, tavern.Item{ID: fmt.Sprint(n)}))
		need(tavern.WorkflowsOf(st).Start(ctx, "inner", tavern.FlowOptions{ID: fmt.Sprint("f", n)}))
	}
	for n, wrong := range []time.Duration{0, -24 * time.Hour, 365 * 24 * time.Hour} {
		t.Run(fmt.Sprint("a clock that is wrong by ", wrong), func(t *testing.T) {
			lasts := func(what string, until time.Time) {
				t.Helper()
				if left := until.Sub(clock.now()); left > time.Minute || left < 50*time.Second {
					t.Errorf("%s lasts %v, want a minute", what, left)
				}
			}
			clock.ahead.Add(int64(time.Hour))
			c := need(tavern.QueueOf(begin(wrong), "q").TryClaim(ctx, "w"))
			lasts("a claim", c.Until)
			lasts("what the list shows", need(q.Get(ctx, c.Item.ID)).Until)
			must(t, c.Finish(ctx, nil))
			clock.ahead.Add(int64(time.Hour))
			f := need(tavern.FlowOf(begin(wrong), fmt.Sprint("f", n)).Claim(ctx, "w", time.Minute))
			lasts("that of a flow", f.Until)
			clock.ahead.Add(int64(time.Hour))
			lasts("that of an agent", need(tavern.AgentOf(begin(wrong), a.ID()).Lease(ctx, "w", time.Minute)).Until)
			clock.ahead.Add(int64(time.Hour))
			lasts("that of a document", need(begin(wrong).Documents().Lease(ctx, "doc", fmt.Sprint(n), "w", time.Minute)).Until)
			clock.ahead.Add(int64(time.Hour))
			h := need(tavern.InboxOf(begin(wrong), a.ID()).Refused(ctx, told.Offset, "busy"))
			when, _ := h.Last.Time()
			lasts("a minute from a refusal", when.Add(time.Minute))
		})
	}
	t.Run("a server of others", func(t *testing.T) {
		// Its clock is this machine's and cannot be set: this only checks that it answers.
		st := storetest.Open(t, "nats")
		if now := need(st.LeaseTime(ctx)); time.Since(now).Abs() > time.Minute {
			t.Errorf("the time is %v", now)
		}
	})
}
