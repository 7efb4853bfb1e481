package tavern_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func TestQueue(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-04 a queue is created, read and updated", func(t *testing.T) { queueSettings(t, st) })
		t.Run("D-17 an item is handed out at once, to one worker", func(t *testing.T) { queueAtOnce(t, st) })
		t.Run("D-18 a claim lasts as long as the queue says", func(t *testing.T) { queueLeases(t, st) })
		t.Run("D-18 a lease that is over returns the item", func(t *testing.T) { queueLease(t, st) })
		t.Run("D-19 the order is visible to all", func(t *testing.T) { queueOrder(t, st) })
		t.Run("D-39 nothing rests on memory", func(t *testing.T) { queueForgotten(t, st) })
		t.Run("D-59 a late worker is refused", func(t *testing.T) { queueLate(t, st) })
		t.Run("D-60 dead letters", func(t *testing.T) { queueDead(t, st) })
		t.Run("D-61 the instruction as it stands", func(t *testing.T) { queueInstruction(t, st) })
		t.Run("D-62 a queue is not rewound", func(t *testing.T) { queueRewind(t, st) })
		t.Run("serial", func(t *testing.T) { queueSerial(t, st) })
		t.Run("hostile", func(t *testing.T) { queueHostile(t, st) })
	})
}

func queueSettings(t *testing.T, st *tally.Store) {
	ctx, q := t.Context(), tavern.QueueOf(st, "settings")
	if _, err := q.Settings(ctx); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("settings of a missing queue: %v", err)
	}
	if err := q.Configure(ctx, tavern.QueueSettings{}); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("configure a missing queue: %v", err)
	}
	must(t, q.Create(ctx, tavern.QueueSettings{Title: "builds", OnEmpty: "hibernate", Lease: time.Minute}))
	if err := q.Create(ctx, tavern.QueueSettings{}); !errors.Is(err, tally.ErrExists) {
		t.Errorf("create a queue a second time: %v", err)
	}
	first := need(q.Settings(ctx))
	want := tavern.QueueSettings{Title: "builds", OnEmpty: "hibernate", Lease: time.Minute, MaxAttempts: 5, Dead: "hold", Revision: first.Revision}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	need(q.Enqueue(ctx, tavern.Item{Body: []byte("1")})) // does not conflict
	second := first
	second.MaxAttempts, second.OnEmpty = 2, ""
	must(t, q.Configure(ctx, second))
	before := queueHead(t, st)
	_, conflict := errors.AsType[*tavern.QueueConflictError](q.Configure(ctx, first))
	if now := need(q.Settings(ctx)); !conflict || queueHead(t, st) != before || now.MaxAttempts != 2 || now.OnEmpty != "" || now.Lease != time.Minute {
		t.Errorf("conflict %v: %+v", conflict, now)
	}
	for _, wrong := range []tavern.QueueSettings{{Lease: -1}, {Lease: time.Microsecond}, {MaxAttempts: -1}, {Dead: "bury"}, {Serial: true}, {OnEmpty: "\xff"}} {
		if _, invalid := errors.AsType[*events.InvalidError](q.Configure(ctx, wrong)); !invalid {
			t.Errorf("the invalid settings %+v were accepted", wrong)
		}
	}
}

func queueHead(t *testing.T, st *tally.Store) events.Offset { return need(st.Log.Head(t.Context())) }

func queueAtOnce(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "at once")
	var wg sync.WaitGroup
	var mu sync.Mutex
	had := make(map[string]int)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	arrived := make(chan string, 15)
	for n := range 8 {
		wg.Go(func() {
			for {
				c, err := q.Next(ctx, fmt.Sprint("worker ", n))
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				had[c.Item.ID]++
				mu.Unlock()
				if c.Item.ID < "j" {
					arrived <- c.Item.ID
				}
				if err := c.Finish(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 15 { // one at a time, while all workers wait
		id := fmt.Sprint("a", n)
		need(q.Enqueue(ctx, tavern.Item{ID: id}))
		if got := heard(t, arrived, "a worker to get item "+id); got != id {
			t.Errorf("a worker got item %s, want %s", got, id)
		}
	}
	many := queueItems(60)
	for i := range many {
		many[i].ID = "many " + many[i].ID
	}
	need(q.EnqueueMany(ctx, many...))
	await(t, "no open item", func() bool {
		n, err := queueOpen(t.Context(), q)
		must(t, err)
		return n == 0
	})
	stop()
	wg.Wait()
	for id, n := range had {
		if n != 1 {
			t.Errorf("item %q was claimed %d times", id, n)
		}
	}
	if len(had) != 75 {
		t.Errorf("got %d claimed items", len(had))
	}
}

func queueLease(t *testing.T, st *tally.Store) {
	const lease = 4 * time.Second // longer than a busy machine needs for two calls
	ctx, q := queueSoon(t), tavern.QueueOf(st, "lease")
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: lease}))
	need(q.Enqueue(ctx, tavern.Item{ID: "a", Body: []byte("text")}))
	begun := time.Now()
	first := need(q.Next(ctx, "w1"))
	queueLasts(t, st, "lease", lease, first.Fence, first.Until)
	if empty := queueNone(t, q); empty.Claimed != 1 || !empty.Next.Equal(first.Until) {
		t.Errorf("got %+v, the lease ends at %v", empty, first.Until)
	}
	second := need(q.Next(ctx, "w2")) // waits for the lease, not for a record
	if took := time.Since(begun); took < lease*9/10 {
		t.Errorf("the item was free again after %v", took)
	}
	if second.Attempt != 2 || second.Fence <= first.Fence || string(second.Item.Body) != "text" {
		t.Errorf("got %+v", second)
	}
	if _, err := first.Renew(ctx); !errors.Is(err, log.ErrConflict) {
		t.Errorf("renew a lost claim: %v", err)
	}
	renewed := need(st.Log.Durable(ctx))
	until := need(second.Renew(ctx))
	queueLasts(t, st, "lease", lease, max(renewed, second.Fence), until)
	if s := need(q.Get(ctx, "a")); !s.Until.Equal(until) || s.Worker != "w2" {
		t.Errorf("renewed until %v: %+v", until, s)
	}
	must(t, second.Release(ctx))
	third := need(q.Next(ctx, "w3"))
	if third.Attempt != 2 {
		t.Errorf("a released attempt counts: %d", third.Attempt)
	}
	must(t, third.Finish(ctx, []byte(`{"ok": true}`)))
	must(t, third.Finish(ctx, []byte(`{"ok": true}`))) // the same event
	s := need(q.Get(ctx, "a"))
	var history []string
	for _, a := range s.History {
		history = append(history, fmt.Sprint(a.Worker, " ", a.Outcome, " ", string(a.Result)))
	}
	if want := []string{"w1 lost ", "w2 released ", `w3 completed {"ok": true}`}; !slices.Equal(history, want) || s.State != tavern.ItemDone {
		t.Errorf("%s: got %q", s.State, history)
	}
}

// queueLasts checks that a claim, or its renewal, lasts as long as the queue's lease, from about the log's time. It
// ends the test, so that the test does not wait for long.
func queueLasts(t *testing.T, st *tally.Store, what string, lease time.Duration, near events.Offset, until time.Time) {
	t.Helper()
	rec := need(st.Log.Record(t.Context(), near))
	if lasts := until.Sub(rec.Recorded); lasts > lease*3/2+time.Second/2 || lasts < lease/2 {
		t.Fatalf("%s: a claim lasts %v, want %v", what, lasts, lease)
	}
}

// queueLeases claims with several leases: the default, a set one, a changed one, and a renewed one.
func queueLeases(t *testing.T, st *tally.Store) {
	ctx := queueSoon(t)
	for name, lease := range map[string]time.Duration{"lease-default": 0, "lease-short": 5 * time.Second, "lease-hour": time.Hour} {
		q := tavern.QueueOf(st, name)
		must(t, q.Create(ctx, tavern.QueueSettings{Lease: lease}))
		need(q.EnqueueMany(ctx, tavern.Item{ID: "a"}, tavern.Item{ID: "b"}))
		want := lease
		if want == 0 {
			want = 2 * time.Minute
		}
		c := need(q.TryClaim(ctx, "w"))
		queueLasts(t, st, name, want, c.Fence, c.Until)
		queueLasts(t, st, name+", renewed", want, need(st.Log.Durable(ctx)), need(c.Renew(ctx)))
		set := need(q.Settings(ctx))
		set.Lease = 20 * time.Minute
		must(t, q.Configure(ctx, set))
		c = need(q.TryClaim(ctx, "w"))
		queueLasts(t, st, name+", changed", set.Lease, c.Fence, c.Until)
	}
}

func queueOrder(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "order")
	far := time.Now().Add(time.Hour)
	need(q.EnqueueMany(ctx, tavern.Item{ID: "low"}, tavern.Item{ID: "high", Priority: 9}, tavern.Item{ID: "after", After: []string{"low", "never"}, Priority: 9},
		tavern.Item{ID: "due", DueAt: far}, tavern.Item{ID: "mid", Priority: 5}, tavern.Item{ID: "mid2", Priority: 5}, tavern.Item{ID: "then", After: []string{"high"}}))
	want := []string{"high ready", "after waiting", "mid ready", "mid2 ready", "low ready", "due waiting", "then waiting"}
	list, next := queueList(t, q, tavern.ListQuery{})
	if !slices.Equal(queueIDs(list), want) || next != "" {
		t.Errorf("the list is %q, the token of the next page %q", queueIDs(list), next)
	}
	if !slices.Equal(list[1].Waits, []string{"low", "never"}) {
		t.Errorf("the second item waits for %q", list[1].Waits)
	}
	var had []string
	for range 3 {
		c := need(q.TryClaim(ctx, "w"))
		had = append(had, c.Item.ID)
		must(t, c.Finish(ctx, nil))
		tavern.ForgetQueues(st)
	}
	c := need(q.TryClaim(ctx, "w"))
	had = append(had, c.Item.ID)
	if !slices.Equal(had, []string{"high", "mid", "mid2", "low"}) {
		t.Errorf("the claimed items are %q", had)
	}
	want = []string{"after waiting", "low claimed", "due waiting", "then ready"}
	for range 2 { // also for a process without a cache
		var paged []string
		for query := (tavern.ListQuery{Limit: 1}); ; {
			list, next := queueList(t, q, query)
			paged = append(paged, queueIDs(list)...)
			if query.After = next; next == "" {
				break
			}
		}
		if !slices.Equal(paged, want) {
			t.Errorf("the pages have %q", paged)
		}
		list, _ = queueList(t, q, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDone, tavern.ItemClaimed}})
		if got := queueIDs(list); !slices.Equal(got, []string{"low claimed", "high done", "mid done", "mid2 done"}) {
			t.Errorf("the list is %q", got)
		}
		tavern.ForgetQueues(st)
	}
}

func queueList(t *testing.T, q *tavern.Queue, query tavern.ListQuery) ([]tavern.ItemStatus, string) {
	t.Helper()
	list, next, err := q.List(t.Context(), query)
	must(t, err)
	return list, next
}

// If the caches are dropped between any two calls, a claim continues by its fence.
func queueForgotten(t *testing.T, st *tally.Store) {
	ctx := queueSoon(t)
	handle := func() *tavern.Queue {
		tavern.ForgetQueues(st)
		return tavern.QueueOf(st, "forgotten")
	}
	must(t, handle().Create(ctx, tavern.QueueSettings{MaxAttempts: 2, OnEmpty: "sleep"}))
	need(handle().Enqueue(ctx, tavern.Item{ID: "a", Body: []byte("[1]")}))
	need(handle().Enqueue(ctx, tavern.Item{ID: "b", After: []string{"a"}}))
	if c := need(handle().TryClaim(ctx, "w")); c.Item.ID != "a" || c.Attempt != 1 {
		t.Errorf("got %+v", c)
	}
	fence := need(handle().Get(ctx, "a")).Fence
	claim := func() *tavern.Claim { return need(handle().Resume(ctx, "a", fence)) }
	until := need(claim().Renew(ctx))
	if c := claim(); !c.Until.Equal(until) || string(c.Item.Body) != "[1]" || c.Attempt != 1 {
		t.Errorf("%+v, renewed until %v", c, until)
	}
	must(t, claim().Fail(ctx, "first", true))
	if _, err := handle().Resume(ctx, "a", fence); !errors.Is(err, log.ErrConflict) {
		t.Errorf("resume an ended claim: %v", err)
	}
	c := need(handle().Next(ctx, "w"))
	if c.Attempt != 2 || queueNone(t, handle()).Waiting != 1 {
		t.Errorf("the attempt is %d", c.Attempt)
	}
	tavern.ForgetQueues(st)
	must(t, c.Fail(ctx, "second", true))
	if empty := queueNone(t, handle()); empty.Dead != 1 || empty.Waiting != 1 || empty.OnEmpty != "sleep" {
		t.Errorf("got %+v", empty)
	}
	must(t, handle().Requeue(ctx, "a"))
	c = need(handle().Next(ctx, "w"))
	must(t, c.Finish(ctx, nil))
	c = need(handle().Next(ctx, "w")) // a cache that begins now does not have the item a, which is done
	if c.Item.ID != "b" || c.Attempt != 1 {
		t.Errorf("got %+v", c)
	}
	need(handle().Enqueue(ctx, tavern.Item{ID: "c", After: []string{"a"}})) // which is done and not in the cache
	if c := need(handle().TryClaim(ctx, "w")); c.Item.ID != "c" || !slices.Equal(c.Item.After, []string{"a"}) {
		t.Errorf("got %+v", c)
	}
}

func queueLate(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "late")
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: 30 * time.Millisecond}))
	need(q.Enqueue(ctx, tavern.Item{ID: "a"}))
	slow := need(q.Next(ctx, "slow"))
	must(t, q.Configure(ctx, tavern.QueueSettings{}))
	fast := need(q.Next(ctx, "fast"))
	for range 2 { // the second time is the same event
		fenced, ok := errors.AsType[*tally.FencedError](slow.Finish(ctx, []byte(`"slow"`)))
		if !ok || fenced.Have != fast.Fence || fenced.Holder != "fast" || fenced.Fence != slow.Fence || fenced.Stale == 0 {
			t.Errorf("got %+v", fenced)
		}
	}
	must(t, fast.Finish(ctx, []byte(`"fast"`)))
	if fenced, ok := errors.AsType[*tally.FencedError](slow.Fail(ctx, "after all", false)); !ok || fenced.Outcome != "completed" {
		t.Errorf("got the error %+v", fenced)
	}
	s := need(q.Get(ctx, "a"))
	if len(s.History) != 2 || s.History[0].Outcome != "lost" || len(s.History[0].Stale) != 2 || string(s.History[0].Stale[0].Result) != `"slow"` || string(s.History[1].Result) != `"fast"` {
		t.Errorf("got %+v", s.History)
	}
}

func queueDead(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "dead")
	must(t, q.Create(ctx, tavern.QueueSettings{MaxAttempts: 3}))
	need(q.Enqueue(ctx, tavern.Item{ID: "a"}))
	need(q.Enqueue(ctx, tavern.Item{ID: "b", After: []string{"a"}}))
	for n := range 2 {
		must(t, need(q.Next(ctx, "w")).Fail(ctx, fmt.Sprint("cause ", n), true))
	}
	must(t, q.Configure(ctx, tavern.QueueSettings{MaxAttempts: 3, Lease: 40 * time.Millisecond}))
	need(q.TryClaim(ctx, "gone")) // reports nothing
	var empty *tavern.EmptyError
	await(t, "a dead item", func() bool { empty = queueNone(t, q); return empty.Dead == 1 })
	if empty.Waiting != 1 {
		t.Errorf("got %+v", empty)
	}
	list, _ := queueList(t, q, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDead}})
	if len(list) != 1 || list[0].Outcome != projector.OutcomeDead {
		t.Fatalf("got %+v", list)
	}
	var history []string
	for _, a := range list[0].History {
		history = append(history, fmt.Sprint(a.Number, a.Outcome, a.Error))
	}
	if want := []string{"1failedcause 0", "2failedcause 1", "3stopped:deadthe lease of gone was over"}; !slices.Equal(history, want) {
		t.Errorf("got %q", history)
	}
	must(t, q.Requeue(ctx, "a"))
	if wrong, ok := errors.AsType[*tavern.ItemStateError](q.Requeue(ctx, "a")); !ok || wrong.Have != tavern.ItemReady {
		t.Errorf("got the error %+v", wrong)
	}
	if err := q.Requeue(ctx, "z"); !errors.Is(err, tally.ErrNotFound) {
		t.Error(err)
	}
	c := need(q.Next(ctx, "w"))
	if c.Attempt != 1 || len(need(q.Get(ctx, "a")).History) != 4 {
		t.Errorf("the retried item has attempt %d", c.Attempt)
	}
	must(t, c.Fail(ctx, "for good", false))
	if s := need(q.Get(ctx, "a")); s.State != tavern.ItemDead || s.Outcome != "failed" || s.History[3].Error != "for good" {
		t.Errorf("got %+v", s)
	}
	must(t, q.Configure(ctx, tavern.QueueSettings{Dead: "pass"}))
	if c := need(q.Next(ctx, "w")); c.Item.ID != "b" {
		t.Errorf("got %+v", c.Item)
	}
}

func queueInstruction(t *testing.T, st *tally.Store) {
	ctx, q := t.Context(), tavern.QueueOf(st, "empty")
	must(t, q.Create(ctx, tavern.QueueSettings{OnEmpty: "idle"}))
	for n := range 10 {
		want := fmt.Sprint("instruction ", n)
		if got := queueNone(t, q).OnEmpty; n == 0 && got != "idle" {
			t.Errorf("got %q", got)
		}
		must(t, tavern.QueueOf(st, "empty").Configure(ctx, tavern.QueueSettings{OnEmpty: want}))
		if got := queueNone(t, q).OnEmpty; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func queueRewind(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "rewound")
	first := need(q.Enqueue(ctx, tavern.Item{ID: "a"}))
	need(q.Enqueue(ctx, tavern.Item{ID: "b"}))
	c := need(q.Next(ctx, "w"))
	for _, id := range []string{q.Subject().ID, projector.ItemSession("rewound", "a")} {
		s := st.Session(id)
		_, plan := s.PlanRewind(ctx, first.Offset.String(), "")
		_, _, fork := s.Fork(ctx, "head", "")
		for _, err := range []error{plan, fork} {
			if _, refused := errors.AsType[*tally.KindError](err); !refused {
				t.Errorf("%s: got the error %v", id, err)
			}
		}
		o := need(s.Outline(ctx))
		need(s.Append(ctx, log.At(o.Offset()), &events.SessionRewound{To: o.First()})) // around the command
	}
	list, _ := queueList(t, q, tavern.ListQuery{})
	if got := queueIDs(list); !slices.Equal(got, []string{"a claimed", "b ready"}) {
		t.Errorf("got %q", got)
	}
	must(t, c.Finish(ctx, nil))
}

func queueSerial(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "serial")
	must(t, q.Create(ctx, tavern.QueueSettings{Serial: true, Lease: 3 * time.Second, MaxAttempts: 2}))
	need(q.EnqueueMany(ctx, tavern.Item{ID: "a"}, tavern.Item{ID: "b", Priority: 9}, tavern.Item{ID: "c"}))
	slow := need(q.Next(ctx, "w1"))
	if empty := queueNone(t, q); slow.Item.ID != "a" || empty.Claimed != 1 {
		t.Errorf("%s, %+v", slow.Item.ID, empty)
	}
	fast := need(q.Next(ctx, "w2"))
	if fast.Item.ID != "a" || fast.Attempt != 2 {
		t.Errorf("got %+v", fast)
	}
	if fenced, ok := errors.AsType[*tally.FencedError](slow.Finish(ctx, nil)); !ok || fenced.Holder != "w2" || fenced.Stale == 0 {
		t.Errorf("got the error %+v", fenced)
	}
	need(q.Enqueue(ctx, tavern.Item{ID: "d"})) // does not conflict
	must(t, fast.Finish(ctx, nil))
	tavern.ForgetQueues(st)
	for _, id := range []string{"b", "c", "d"} {
		c := need(q.Next(ctx, "w"))
		if c.Item.ID != id {
			t.Errorf("got %s, want %s", c.Item.ID, id)
		}
		must(t, c.Fail(ctx, "no\xff", false))
	}
	if s := need(q.Get(ctx, "a")); s.State != tavern.ItemDone || len(s.History) != 2 || len(s.History[0].Stale) != 1 {
		t.Errorf("got %+v", s)
	}
	list, _ := queueList(t, q, tavern.ListQuery{})
	if got := queueIDs(list); !slices.Equal(got, []string{"b dead", "c dead", "d dead"}) || list[0].History[0].Error != "no\ufffd" {
		t.Errorf("%q, %+v", got, list)
	}
}

func queueHostile(t *testing.T, st *tally.Store) {
	ctx, q := queueSoon(t), tavern.QueueOf(st, "a/../ö\n=")
	bodies := [][]byte{nil, []byte(" 1 "), []byte("{\"a\": \"\\ud800\"}"), []byte("\xff\x00"), []byte(`{"a":1,"a":2}`), []byte("\xef\xbb\xbf{}"), bytes.Repeat([]byte("x"), 300_000)}
	for n, id := range []string{"..", "a/../b", "\u202egnp", "line\nbreak", strings.Repeat("i", 400), "a/b", "ü"} {
		need(q.Enqueue(ctx, tavern.Item{ID: id, Body: bodies[n]}))
		c := need(q.Next(ctx, "w"))
		if c.Item.ID != id || !bytes.Equal(c.Item.Body, bodies[n]) {
			t.Errorf("the item %q was claimed as %q, its body %q as %.50q", id, c.Item.ID, bodies[n], c.Item.Body)
		}
		must(t, c.Finish(ctx, bodies[n]))
	}
	for _, wrong := range []tavern.Item{{ID: strings.Repeat("i", 500)}, {ID: "x", Priority: 10}, {ID: "x", Priority: -1}, {ID: "x", After: []string{"x"}}, {ID: "x", After: []string{""}}} {
		before := queueHead(t, st)
		_, err := q.Enqueue(ctx, wrong)
		if _, invalid := errors.AsType[*events.InvalidError](err); !invalid || queueHead(t, st) != before {
			t.Errorf("enqueue the invalid item %.40v: %v", wrong, err)
		}
	}
	if _, err := q.Enqueue(ctx, tavern.Item{ID: "..", Body: []byte("other")}); !errors.Is(err, tally.ErrExists) {
		t.Errorf("enqueue another item with a used id: %v", err)
	}
	if it := need(q.Enqueue(ctx, tavern.Item{ID: "..", Body: bodies[0]})); need(q.Get(ctx, "..")).Offset != it.Offset {
		t.Errorf("the same item got the new offset %v", it.Offset)
	}
	// The names of two queues and of their items' sessions could be confused.
	for _, pair := range [][2]string{{"a/b", "c"}, {"a", "b/c"}, {"a=2Fb", "c"}} {
		other := tavern.QueueOf(st, pair[0])
		need(other.Enqueue(ctx, tavern.Item{ID: pair[1], Body: []byte(pair[0])}))
		c := need(other.TryClaim(ctx, "w"))
		if string(c.Item.Body) != pair[0] {
			t.Errorf("the queue %q has the item %q of another one", pair[0], c.Item.Body)
		}
		must(t, c.Finish(ctx, nil))
	}
}

// A call without an acknowledgement is repeated, and stored once.
func TestQueueFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, q := t.Context(), tavern.QueueOf(st, "q")
		var c *tavern.Claim
		next := func() (err error) { c, err = q.TryClaim(ctx, "w"); return err }
		call("Create", 1, func() error { return q.Create(ctx, tavern.QueueSettings{MaxAttempts: 2}) })
		call("Configure", 1, func() error { return q.Configure(ctx, tavern.QueueSettings{MaxAttempts: 2, OnEmpty: "x"}) })
		call("Enqueue", 1, func() error { _, err := q.Enqueue(ctx, tavern.Item{ID: "a"}); return err })
		call("Enqueue, the same", 0, func() error { _, err := q.Enqueue(ctx, tavern.Item{ID: "a"}); return err })
		call("EnqueueMany", 2, func() error {
			_, err := q.EnqueueMany(ctx, tavern.Item{ID: "b"}, tavern.Item{ID: "a"}, tavern.Item{ID: "c"})
			return err
		})
		call("TryClaim", 1, next)
		call("Renew", 1, func() error { _, err := c.Renew(ctx); return err })
		call("Fail", 1, func() error { return c.Fail(ctx, "x", true) })
		call("Fail, the same", 0, func() error { return c.Fail(ctx, "x", true) })
		call("TryClaim again", 1, next)
		call("Release", 1, func() error { return c.Release(ctx) })
		call("TryClaim once more", 1, next)
		call("Fail for good", 1, func() error { return c.Fail(ctx, "x", true) })
		call("Requeue", 1, func() error { return q.Requeue(ctx, "a") })
		call("TryClaim anew", 1, next)
		call("Finish", 1, func() error { return c.Finish(ctx, []byte("1")) })
		call("Finish, the same", 0, func() error { return c.Finish(ctx, []byte("1")) })
		if s := need(q.Get(ctx, "a")); s.State != tavern.ItemDone || len(s.History) != 4 {
			t.Errorf("got %+v", s)
		}
	})
}

// After Close no timer of a queue is set, and waiting and later calls return that the store is closed.
func TestQueueClosed(t *testing.T) {
	before := goleak.IgnoreCurrent()
	l := need(log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{}))
	st := need(tally.Open(t.Context(), l, tally.Config{}))
	ctx, q := queueSoon(t), tavern.QueueOf(st, "closed")
	need(q.Enqueue(ctx, tavern.Item{ID: "a"}))
	need(q.TryClaim(ctx, "w")) // a timer is set for the end of its lease, and one for the cache's idle time
	stop := tavern.Timers(q)
	waiting := make(chan error, 1)
	go func() {
		_, err := q.Next(ctx, "waits")
		waiting <- err
	}()
	tavern.AwaitWaiting(t, q, 1)
	must(t, st.Close())
	if err := heard(t, waiting, "the waiting worker to return after Close"); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("a waiting worker after Close: %v", err)
	}
	_, claimed := q.TryClaim(ctx, "late")
	_, put := q.Enqueue(ctx, tavern.Item{})
	if !errors.Is(claimed, log.ErrUnavailable) || !errors.Is(put, log.ErrUnavailable) {
		t.Errorf("calls after Close: %v, %v", claimed, put)
	}
	if set := stop(); set != 0 {
		t.Errorf("got %d timers after Close, want none", set)
	}
	goleak.VerifyNone(t, before)
}
