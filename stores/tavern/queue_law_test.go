package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// workerGroup is the workers at one queue, with their results. Some workers die, and some come back too late.
type workerGroup struct {
	t  *testing.T
	st *tally.Store
	q  *tavern.Queue
	mu sync.Mutex // guards the fields below

	accepted map[string]int       // item -> accepted finishes
	fences   map[string][]int64   // item -> claims, in the order in which their workers got them
	held     map[string]time.Time // item -> end of the time for which a living worker holds it
	late     []*tavern.Claim      // of workers that come back
}

// claimed notes a claim.
func (c *workerGroup) claimed(claim *tavern.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := claim.Item.ID
	c.fences[id] = append(c.fences[id], int64(claim.Fence))
	if until, ok := c.held[id]; ok && time.Until(until) > 0 {
		c.t.Errorf("item %s was claimed while its lease lasts another %v", id, time.Until(until))
	}
}

// hold notes that a worker holds an item for a while.
func (c *workerGroup) hold(id string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[id] = until; until.IsZero() {
		delete(c.held, id)
	}
}

// finish finishes an item, and notes the result.
func (c *workerGroup) finish(ctx context.Context, claim *tavern.Claim) {
	err := claim.Finish(context.WithoutCancel(ctx), fmt.Appendf(nil, "%d", claim.Fence)) // otherwise a finish could count without its worker knowing
	c.hold(claim.Item.ID, time.Time{})
	switch {
	case err == nil:
		c.mu.Lock()
		c.accepted[claim.Item.ID]++
		c.mu.Unlock()
	case !errors.Is(err, log.ErrConflict) && ctx.Err() == nil:
		c.t.Errorf("finish: %v", err)
	}
}

// work claims and finishes items until ctx is done.
func (c *workerGroup) work(ctx context.Context, name string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		claim, err := c.q.Next(ctx, name)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, log.ErrUnknown) {
				c.t.Errorf("next: %v", err)
			}
			continue
		}
		c.claimed(claim)
		switch r.IntN(12) {
		case 0: // dies
		case 1: // sleeps, and comes back
			c.mu.Lock()
			c.late = append(c.late, claim)
			c.mu.Unlock()
		case 2:
			must(c.t, ignoreFenced(claim.Release(ctx)))
		case 3:
			must(c.t, ignoreFenced(claim.Fail(ctx, "by chance", true)))
		case 4: // takes long
			c.linger(ctx, claim)
		case 5: // drops the process's caches
			tavern.ForgetQueues(c.st)
			fallthrough
		default:
			c.finish(ctx, claim)
		}
	}
}

func ignoreFenced(err error) error {
	if errors.Is(err, log.ErrConflict) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// linger renews a claim beyond its lease, and then finishes it.
func (c *workerGroup) linger(ctx context.Context, claim *tavern.Claim) {
	for range 3 {
		until, err := claim.Renew(ctx)
		if err != nil {
			must(c.t, ignoreFenced(err))
			c.hold(claim.Item.ID, time.Time{})
			return
		}
		c.hold(claim.Item.ID, until.Add(-lawLease/2)) // a record in transit does not count yet
		time.Sleep(lawLease / 2)
	}
	c.finish(ctx, claim)
}

const lawLease = 60 * time.Millisecond

// Sixteen workers, some of which die and some of which come back too late, on a log whose publications fail: each item
// has exactly one accepted finish, none is lost, claims are in the order of their fences, and all readers see the same
// order.
func TestQueueLaw(t *testing.T) {
	t.Run("memory, with faults", func(t *testing.T) {
		queueLaw(t, storetest.Faulty(t, logtest.Sometimes(7, 12, logtest.Dropped, logtest.AckLost)), testkit.Times(240))
	})
	t.Run("local", func(t *testing.T) {
		testkit.OnlySoak(t) // processes play it in TestQueueCampaign
		queueLaw(t, storetest.Open(t, "local"), testkit.Times(100))
	})
}

func queueLaw(t *testing.T, st *tally.Store, n int) {
	q := tavern.QueueOf(st, "law")
	must(t, q.Create(t.Context(), tavern.QueueSettings{Lease: lawLease, MaxAttempts: 1000}))
	c := &workerGroup{t: t, st: st, q: q, accepted: make(map[string]int), fences: make(map[string][]int64), held: make(map[string]time.Time)}
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() { c.work(ctx, fmt.Sprint("w", w), uint64(w)) })
	}
	need(q.EnqueueMany(ctx, queueItems(n)...))
	for need(queueOpen(ctx, q)) > 0 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
		c.comeBack(ctx)
	}
	stop()
	wg.Wait()
	c.comeBack(t.Context())
	c.check(n)
}

// comeBack lets the sleeping workers finish.
func (c *workerGroup) comeBack(ctx context.Context) {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	for _, claim := range late {
		if time.Now().Before(claim.Until.Add(lawLease)) && ctx.Err() == nil {
			c.mu.Lock()
			c.late = append(c.late, claim)
			c.mu.Unlock()
			continue
		}
		c.finish(ctx, claim)
	}
}

func (c *workerGroup) check(n int) {
	ctx := c.t.Context()
	tavern.ForgetQueues(c.st)
	done, _, err := c.q.List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDone}})
	must(c.t, err)
	if len(done) != n {
		c.t.Errorf("%d of %d items are done", len(done), n)
	}
	for id, times := range c.accepted {
		if times != 1 {
			c.t.Errorf("item %s: %d finishes were accepted", id, times)
		}
	}
	if len(c.accepted) != n {
		c.t.Errorf("%d of %d items were finished", len(c.accepted), n)
	}
	for id, list := range c.fences {
		if sorted := slices.Sorted(slices.Values(list)); len(slices.Compact(sorted)) != len(list) {
			c.t.Errorf("item %s: fences %v", id, list)
		}
	}
	for _, s := range done[:min(20, len(done))] {
		status := need(c.q.Get(ctx, s.ID))
		completed := 0
		for _, a := range status.History {
			if a.Outcome == "completed" {
				completed++
			}
		}
		if completed != 1 {
			c.t.Errorf("item %s: %+v", s.ID, status.History)
		}
	}
}

// D-59: each worker whose lease has ended is refused, and its result is recorded without effect.
func TestQueueFencing(t *testing.T) {
	st, clock := queueStore(t)
	ctx, q := queueWithin(t, 2*time.Minute), tavern.QueueOf(st, "fencing")
	n := testkit.Times(1000)
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: time.Hour}))
	need(q.EnqueueMany(ctx, queueItems(n)...))
	var slow, fast []*tavern.Claim
	for range n {
		slow = append(slow, need(q.Next(ctx, "slow")))
	}
	clock.ahead.Add(-int64(24 * time.Hour)) // a clock that is set back decides nothing
	queueNone(t, q)
	clock.ahead.Add(int64(24 * time.Hour))
	queueJump(t, st, clock, 61*time.Minute)
	for range n {
		fast = append(fast, need(q.Next(ctx, "fast")))
	}
	refused := 0
	for _, c := range slow {
		fenced, ok := errors.AsType[*tally.FencedError](c.Finish(ctx, []byte(`"slow"`)))
		if ok && fenced.Holder == "fast" && fenced.Stale != 0 {
			refused++
		}
	}
	for _, c := range fast {
		must(t, c.Finish(ctx, []byte(`"fast"`)))
	}
	if refused != n {
		t.Errorf("%d of %d late finishes were refused", refused, n)
	}
	for _, c := range fast[:20] {
		s := need(q.Get(ctx, c.Item.ID))
		if string(s.History[1].Result) != `"fast"` || len(s.History[0].Stale) != 1 || string(s.History[0].Stale[0].Result) != `"slow"` {
			t.Errorf("got %+v", s)
		}
	}
}

// If workers choose by chance, because others are often faster, they take items that were claimed before at once, and
// pass over no item forever, however many items are added.
func TestQueuePassesNothingOver(t *testing.T) {
	st, clock := queueStore(t)
	ctx, q := t.Context(), tavern.QueueOf(st, "contest")
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: time.Minute}))
	need(q.EnqueueMany(ctx, queueItems(100)...))
	for range 3 {
		need(q.TryClaim(ctx, "dies"))
	}
	queueJump(t, st, clock, 2*time.Minute)
	const rounds = 1500
	var order []string
	for n := range rounds {
		tavern.ContestQueues(st, 64)
		c := need(q.TryClaim(ctx, "w"))
		order = append(order, c.Item.ID)
		must(t, c.Finish(ctx, nil))
		need(q.Enqueue(ctx, tavern.Item{ID: fmt.Sprintf("i%04d", 100+n)}))
	}
	if lost := order[:3]; !slices.Equal(lost, []string{"i0000", "i0001", "i0002"}) {
		t.Errorf("the first items are %v, want the three that were claimed before", lost)
	}
	for n, i := range queueItems(rounds - 500) {
		if at := slices.Index(order, i.ID); at < 0 || at-n > 400 {
			t.Fatalf("item %s with %d items before it was claimed as number %d", i.ID, n, at)
		}
	}
}

// False reports change nothing: a finish without a claim, a renewal of another worker's claim, an old request.
func TestQueueLies(t *testing.T) {
	st, _ := queueStore(t)
	ctx, q := queueSoon(t), tavern.QueueOf(st, "lies")
	need(q.Enqueue(ctx, tavern.Item{ID: "a"}))
	s := st.Session(projector.ItemSession("lies", "a"))
	run := events.RunRef{Kind: "item", ID: "a"}
	lie := func(p events.Payload) { need(s.Append(ctx, log.Any, p)) }
	far := time.Now().Add(time.Hour).UnixMilli()
	lie(&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw("1")})
	lie(&events.RunProgressed{Run: run, Kind: "renewed", LeaseUntil: &far, Fence: 1})
	c := need(q.Next(ctx, "honest")) // its session exists already
	lie(&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw("2")})
	lie(&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw("3"), Fence: c.Fence + 1000})
	lie(&events.RunFinished{Run: events.RunRef{Kind: "item", ID: "b"}, Outcome: "completed", Result: events.Raw("4"), Fence: c.Fence})
	lie(&events.RunProgressed{Run: run, Kind: "released", LeaseUntil: new(int64)})
	if s := need(q.Get(ctx, "a")); s.State != tavern.ItemClaimed || s.Worker != "honest" || s.Fence != c.Fence {
		t.Errorf("got %+v", s)
	}
	must(t, c.Finish(ctx, []byte("5")))
	if _, err := q.Resume(ctx, "a", c.Fence); !errors.Is(err, log.ErrConflict) {
		t.Error(err)
	}
	if s := need(q.Get(ctx, "a")); s.State != tavern.ItemDone || string(s.History[0].Result) != "5" {
		t.Errorf("got %+v", s)
	}
	// The session of an item has records before the item is queued.
	need(st.Session(projector.ItemSession("lies", "b")).AppendTurns(ctx, events.MainThread, []byte("1")))
	need(q.Enqueue(ctx, tavern.Item{ID: "b"}))
	must(t, need(q.TryClaim(ctx, "honest")).Finish(ctx, nil))
	// Turns that are not items, or repeat one, are not handed out.
	for _, meta := range []string{`{"id":"c","priority":10}`, `{"id":""}`, `7`, `{"id":"` + strings.Repeat("c", 510) + `"}`} {
		need(st.Session(q.Subject().ID).Append(ctx, log.Any, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw("1"), Meta: events.Raw(meta)}}}))
	}
	if empty := queueNone(t, q); empty.Claimed+empty.Waiting+empty.Dead != 0 {
		t.Errorf("got %+v", empty)
	}
}

// Due work of a queue is decided once, however many processes decide and however often.
func TestQueueDecides(t *testing.T) {
	st, clock := queueStore(t)
	ctx, q := queueSoon(t), tavern.QueueOf(st, "decides")
	must(t, q.Create(ctx, tavern.QueueSettings{MaxAttempts: 1, Lease: time.Minute}))
	need(q.EnqueueMany(ctx, queueItems(3)...))
	due := need(st.LogTime(ctx)).Add(time.Hour).Truncate(time.Millisecond)
	need(q.Enqueue(ctx, tavern.Item{ID: "due", DueAt: due}))
	first := need(q.Next(ctx, "w"))
	decide := func() tavern.QueueDecision {
		w := projector.NewWork(q.Subject().Namespace, "decides", false)
		for rec, err := range st.Log.Read(ctx, events.Range{}) {
			must(t, err)
			if w.Concerns(rec.Subject) {
				w.Apply(projector.Decode(rec))
			}
		}
		d, err := tavern.DecideQueue(q.Subject().Namespace, w.Queue, func(yield func(*projector.QueueItem) bool) {
			for _, id := range []string{"i0000", "i0001", "i0002", "due"} {
				if !yield(w.Items[id]) {
					return
				}
			}
		}, func(i *projector.QueueItem) bool { return len(w.Waits(i)) > 0 }, need(st.LogTime(ctx)))
		must(t, err)
		return d
	}
	d := decide()
	if len(d.Ends) != 0 || !d.Next.Equal(first.Until) {
		t.Errorf("the decision is %+v, the lease ends at %v", d, first.Until)
	}
	queueJump(t, st, clock, 2*time.Minute)
	one, other := decide(), decide()
	if len(one.Ends) != 1 || !one.Next.Equal(due) {
		t.Fatalf("got %+v", one)
	}
	before := queueHead(t, st)
	for _, d := range []tavern.QueueDecision{one, other, one} {
		for _, end := range d.Ends {
			need(st.AppendAll(ctx, end.Parts...))
		}
	}
	if n := queueHead(t, st) - before; n != 1 {
		t.Errorf("the work was decided %d times", n)
	}
	if s := need(q.Get(ctx, "i0000")); s.Outcome != projector.OutcomeDead || s.History[0].Error != "the lease of w was over" {
		t.Errorf("got %+v", s)
	}
	if d := decide(); len(d.Ends) != 0 {
		t.Errorf("got %+v", d)
	}
}
