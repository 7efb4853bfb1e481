package tavern_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

func TestOnce(t *testing.T) {
	t.Run("net Q2 the refusals of a message are its own", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T, st *tally.Store) {
			inboxAgent(t, st, "a", "")
			inboxAgent(t, st, "b", "")
			in, ctx := tavern.InboxOf(st, "b"), t.Context()
			for range 2 {
				m := inboxSend(t, st, "b", inboxNote("a", "x"))
				if h := need(in.Refused(ctx, m.Offset, "no")); h.At != m.Offset || h.Refusals != 1 {
					t.Errorf("the first refusal of the message %v is %+v", m.Offset, h)
				}
			}
		})
	})
	t.Run("net Q2 the worker's next move is from where one without an answer led", func(t *testing.T) {
		isLost, tries := false, 0
		st := storetest.Faulty(t, func() logtest.Fault {
			if !isLost {
				return logtest.None
			}
			if tries++; tries == 1 {
				return logtest.Late
			}
			return logtest.Dropped
		})
		flowTemplates(t, st)
		ctx := t.Context()
		c := need(flowStart(t, st, "suite", "f").Claim(ctx, "w", time.Minute))
		isLost = true
		if err := c.Move(ctx, "run"); !errors.Is(err, log.ErrUnknown) {
			t.Fatal(err)
		}
		isLost = false
		need(st.Session("elsewhere").AppendTurns(ctx, "main", []byte(`"x"`))) // and the move is stored
		if err := c.Move(ctx, "ran"); !errors.Is(err, log.ErrConflict) {
			t.Errorf("a move from a state that was left: %v", err)
		}
		must(t, c.Move(ctx, "ran"))
	})
	t.Run("net Q2 who has an answer is not told that it is late, whatever inbox is read first", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T, st *tally.Store) {
			ctx, end := t.Context(), time.Now().Add(time.Hour)
			for _, id := range []string{"a", "b", "c"} {
				inboxAgent(t, st, id, "")
			}
			ask := inboxNote("a", "?")
			ask.Expects, ask.Deadline = "answer", end
			asked := inboxSend(t, st, "c", ask)
			need(tavern.InboxOf(st, "c").Reply(ctx, asked, tavern.Message{Body: tavern.Text("!")}))
			inboxSend(t, st, "b", ask)
			made, _ := daemonDecides(t, daemonBlunt{daemonScan(st)}, end, daemonsOf(st, "delivery")...)
			if diff := cmp.Diff([]string{"session/inbox=2Fa: overdue"}, daemonWhats(made)); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("net Q3 the window of what an owner left begins when it was archived, if it was never stopped", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T, st *tally.Store) {
			ctx := t.Context()
			a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "x", Assignment: "x"}))
			need(st.Documents().Create(ctx, "doc", "x", tally.Write{Data: []byte("x"), Owner: a.ID()}))
			must(t, a.SetState(ctx, tavern.AgentDone, ""))
			must(t, a.Archive(ctx, "over"))
			at := need(a.Info(ctx)).ArchivedAt.Add(daemonWindows.Orphans)
			made, next := daemonDecides(t, daemonScan(st), at.Add(-time.Second), daemonsOf(st, "janitor")...)
			if len(made) > 0 || !next.Equal(at) {
				t.Errorf("before the time: %v, next at %v, want %v", made, next, at)
			}
			if made, _ = daemonDecides(t, daemonScan(st), at, daemonsOf(st, "janitor")...); len(made) != 1 {
				t.Errorf("at the time: %v", made)
			}
		})
	})
	t.Run("net Q1 a caller that gives up takes along no other item that goes in with its own", func(t *testing.T) {
		ctx, giveUp := context.WithCancel(t.Context())
		first, held := new(sync.Once), make(chan bool)
		admit := func(_ context.Context, parts []log.Part) (func([]log.Ack, error), error) {
			first.Do(func() { <-held })
			if strings.Contains(string(parts[0].Events[0].Data), `"together"`) {
				giveUp()
			}
			return nil, nil
		}
		l := need(log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Host: log.Host{Admit: admit}}))
		st := need(tally.Open(t.Context(), l, tally.Config{}))
		defer func() { must(t, st.Close()) }()
		q := tavern.QueueOf(st, "q")
		var running sync.WaitGroup
		enqueue := func(ctx context.Context, body string) {
			running.Go(func() {
				if _, err := q.Enqueue(ctx, tavern.Item{Body: tavern.Text(body)}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		for range tavern.MaxSeparate {
			enqueue(t.Context(), "apart")
		}
		await(t, "as many appends under way as may be", func() bool { return tavern.Joining(q) == [2]int{tavern.MaxSeparate, 0} })
		for n, ctx := range []context.Context{ctx, t.Context(), t.Context()} {
			enqueue(ctx, "together")
			await(t, "the caller to wait", func() bool { return tavern.Joining(q) == [2]int{tavern.MaxSeparate, n + 1} })
		}
		close(held)
		running.Wait()
		await(t, "the appends to end", func() bool { return tavern.Joining(q) == [2]int{} })
		if n := need(queueOpen(t.Context(), q)); n != tavern.MaxSeparate+3 {
			t.Errorf("%d items are queued, want %d", n, tavern.MaxSeparate+3)
		}
	})
}
