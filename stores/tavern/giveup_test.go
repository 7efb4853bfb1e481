package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// A lateContext is done from some moment on, but its Done channel does not close: only a caller that another event
// wakes notices the end.
type lateContext struct {
	context.Context
	over atomic.Bool
}

func (c *lateContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// onFakeClock runs a test on a store in memory. Time stands still while a goroutine of the test can run.
func onFakeClock(t *testing.T, test func(t *testing.T, st *tally.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := need(tally.Open(t.Context(), logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{}), tally.Config{}))
		defer func() { must(t, st.Close()) }()
		test(t, st)
	})
}

// A fickleContext ends when it is asked for the n-th time whether it has ended.
type fickleContext struct {
	context.Context
	end    context.CancelFunc
	before func() // called before it ends
	n      int64
	asked  atomic.Int64
}

func newFickleContext(ctx context.Context, n int) *fickleContext {
	c := &fickleContext{n: int64(n), before: func() {}}
	c.Context, c.end = context.WithCancel(ctx)
	return c
}

func (c *fickleContext) ask() {
	if c.asked.Add(1) == c.n {
		c.before()
		c.end()
	}
}

func (c *fickleContext) Err() error { c.ask(); return c.Context.Err() }

func (c *fickleContext) Done() <-chan struct{} { c.ask(); return c.Context.Done() }

// A patient is a worker that waits for an item.
type patient struct {
	late   *lateContext
	cancel context.CancelFunc
	gone   bool // it is to give up, now or as soon as it is woken

	mu      sync.Mutex // synctest.Wait orders what the worker did before what the test does, not the other way round
	claim   *tavern.Claim
	failure error
}

// ends keeps the result of the worker's wait.
func (p *patient) ends(claim *tavern.Claim, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claim, p.failure = claim, err
}

// result returns the claim and the error of the worker's wait, both nil while it waits.
func (p *patient) result() (*tavern.Claim, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claim, p.failure
}

func (p *patient) held() *tavern.Claim { claim, _ := p.result(); return claim }

func (p *patient) err() error { _, err := p.result(); return err }

func (p *patient) isWaiting() bool { return p.held() == nil && p.err() == nil && !p.gone }

const patientLease = time.Minute

// giveUpStep is a random step of a program with workers that give up.
type giveUpStep struct {
	what string
	n    int
}

func drawGiveUpStep(t *rapid.T) giveUpStep {
	return giveUpStep{rapid.SampledFrom([]string{"wait", "wait", "wait", "queue", "queue", "queue for some that give up", "queue for some that give up", "give up", "release", "fail", "finish", "lease ends"}).Draw(t, "what"),
		rapid.IntRange(1, 4).Draw(t, "n")}
}

// giveUpWorld is a queue, its items and its workers.
type giveUpWorld struct {
	t        *testing.T
	q        *tavern.Queue
	isSerial bool
	workers  []*patient
	queued   int // items that are not finished
	named    int
}

// begin lets another worker wait.
func (w *giveUpWorld) begin() {
	p := new(patient)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(w.t.Context())
	p.late = &lateContext{Context: ctx}
	w.workers = append(w.workers, p)
	name := fmt.Sprint("w", len(w.workers))
	go func() { p.ends(w.q.Next(p.late, name)) }()
	synctest.Wait()
}

func (w *giveUpWorld) queue(n int) {
	for range n {
		w.named++
		w.queued++
		need(w.q.Enqueue(w.t.Context(), tavern.Item{ID: fmt.Sprint("i", w.named)}))
	}
}

// waiting returns the workers that wait, in their order.
func (w *giveUpWorld) waiting() (list []*patient) {
	for _, p := range w.workers {
		if p.isWaiting() {
			list = append(list, p)
		}
	}
	return list
}

// held returns the workers that hold an item.
func (w *giveUpWorld) held() (list []*patient) {
	for _, p := range w.workers {
		if p.held() != nil {
			list = append(list, p)
		}
	}
	return list
}

// drop ends the work of a worker.
func (w *giveUpWorld) drop(p *patient) {
	w.workers = slices.DeleteFunc(w.workers, func(o *patient) bool { return o == p })
	p.cancel()
}

func (w *giveUpWorld) step(s giveUpStep) {
	ctx := w.t.Context()
	waiting, held := w.waiting(), w.held()
	switch s.what {
	case "wait":
		w.begin()
	case "queue":
		w.queue(s.n)
	case "queue for some that give up":
		for _, p := range waiting[:min(s.n, len(waiting))] {
			p.gone = true
			p.late.over.Store(true)
		}
		w.queue(s.n)
	case "give up":
		for i := 0; i < len(waiting); i += s.n {
			waiting[i].gone = true
			waiting[i].cancel()
		}
	case "lease ends":
		time.Sleep(patientLease + time.Second)
		for _, p := range held {
			w.drop(p)
		}
	default:
		if len(held) == 0 {
			return
		}
		p := held[s.n%len(held)]
		switch s.what {
		case "release":
			must(w.t, p.held().Release(ctx))
		case "fail":
			must(w.t, p.held().Fail(ctx, "so", true))
		case "finish":
			must(w.t, p.held().Finish(ctx, nil))
			w.queued--
		}
		w.drop(p)
	}
}

// law returns how a step leaves an item that waits for a worker, and a worker that waits for an item.
func (w *giveUpWorld) law() string {
	for _, p := range w.workers {
		if err := p.err(); err != nil && !p.gone {
			return fmt.Sprintf("a worker that did not give up got %v", err)
		}
	}
	held := len(w.held())
	free := w.queued - held
	if w.isSerial {
		free = min(w.queued, 1) - held
	}
	if n := len(w.waiting()); free > 0 && n > 0 {
		return fmt.Sprintf("%d items are free, and %d workers sleep", free, n)
	}
	return ""
}

func TestWorkersGiveUp(t *testing.T) {
	t.Run("net Q1 no worker sleeps while an item is free, whoever gave up", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			steps := rapid.SliceOfN(rapid.Custom(drawGiveUpStep), 4, 14).Draw(rt, "steps")
			isSerial := rapid.Bool().Draw(rt, "serial")
			broken := ""
			onFakeClock(t, func(t *testing.T, st *tally.Store) {
				w := &giveUpWorld{t: t, q: tavern.QueueOf(st, "q"), isSerial: isSerial}
				must(t, w.q.Create(t.Context(), tavern.QueueSettings{Lease: patientLease, MaxAttempts: 1000, Serial: isSerial}))
				for i, s := range steps {
					w.step(s)
					synctest.Wait()
					need(st.LogTime(t.Context())) // the log's time goes on from each record that was read
					if broken = w.law(); broken != "" {
						broken = fmt.Sprintf("after step %d, %v: %s", i, s, broken)
						break
					}
				}
				for _, p := range w.workers {
					p.cancel()
				}
				synctest.Wait()
			})
			if broken != "" {
				rt.Fatal(broken)
			}
		})
	})
	t.Run("net Q1 the next worker gets the item, at whatever moment the first one gives up", func(t *testing.T) {
		for _, isSerial := range []bool{false, true} {
			for how := range freed {
				for _, tries := range []bool{false, true} {
					if tries && freed[how] != nil {
						continue // TryClaim does not wait for it
					}
					n := 1
					for passOn(t, isSerial, how, tries, n) && !t.Failed() {
						n++
					}
					if n < 3 && !t.Failed() {
						t.Errorf("serial %v, %s, only tries %v: its context was asked only %d times", isSerial, how, tries, n-1)
					}
				}
			}
		}
	})
}

// slowBackend takes a second to store an append.
type slowBackend struct{ log.Backend }

func (b slowBackend) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	time.Sleep(time.Second)
	return b.Backend.Publish(ctx, p)
}

// If items become free at the same moment and a worker waits for each, the workers do not claim one after the other.
func TestWorkersClaimTogether(t *testing.T) {
	t.Run("net Q1 the worker that takes an item wakes the next one, if there is more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const workers = 6
			st := need(tally.Open(t.Context(), logtest.OpenOn(t, slowBackend{memlog.New(memlog.Config{})}, log.Config{}), tally.Config{}))
			defer func() { must(t, st.Close()) }()
			q := tavern.QueueOf(st, "q")
			must(t, q.Create(t.Context(), tavern.QueueSettings{MaxAttempts: 3}))
			due := time.Now().Add(time.Hour)
			for n := range workers {
				need(q.Enqueue(t.Context(), tavern.Item{ID: fmt.Sprint("i", n), DueAt: due}))
			}
			for n := range workers {
				go func() {
					need(q.Next(t.Context(), fmt.Sprint("w", n)))
					if late := time.Since(due); late > workers/2*time.Second {
						t.Errorf("a worker got its item after %v; to store a claim takes a second", late)
					}
				}()
			}
			time.Sleep(2 * time.Hour)
		})
	})
}

// freed are the ways in which the item becomes free for which workers wait. An item that is there already is free for
// the first worker. The second one begins to wait just before the first one is to give up.
var freed = map[string]func(t *testing.T, q *tavern.Queue, held *tavern.Claim){
	"it is queued": func(t *testing.T, q *tavern.Queue, _ *tavern.Claim) {
		need(q.Enqueue(t.Context(), tavern.Item{ID: "b"}))
	},
	"it is there":    nil,
	"it is released": func(t *testing.T, _ *tavern.Queue, held *tavern.Claim) { must(t, held.Release(t.Context())) },
	"it failed":      func(t *testing.T, _ *tavern.Queue, held *tavern.Claim) { must(t, held.Fail(t.Context(), "so", true)) },
	"its lease ends": func(*testing.T, *tavern.Queue, *tavern.Claim) { time.Sleep(patientLease + time.Second) },
}

// passOn lets a worker give up when its context is asked for the n-th time, while another one waits. It returns false
// if the context is not asked so often.
func passOn(t *testing.T, isSerial bool, how string, tries bool, n int) (gaveUp bool) {
	what := fmt.Sprintf("serial %v, %s, first one only tries %v, gives up at question %d", isSerial, how, tries, n)
	onFakeClock(t, func(t *testing.T, st *tally.Store) {
		ctx, stop := context.WithCancel(t.Context())
		q := tavern.QueueOf(st, "q")
		must(t, q.Create(ctx, tavern.QueueSettings{Lease: patientLease, MaxAttempts: 1000, Serial: isSerial}))
		var held *tavern.Claim
		if how != "it is queued" {
			need(q.Enqueue(ctx, tavern.Item{ID: "b"}))
			held = need(q.TryClaim(ctx, "before"))
		}
		free := freed[how]
		if free == nil {
			must(t, held.Release(ctx))
		}
		fickle := newFickleContext(ctx, n)
		var first, second patient
		wait := func() {
			go func() { second.ends(q.Next(ctx, "second")) }()
		}
		claim := q.Next
		if tries {
			claim = q.TryClaim
		}
		begin := func() { first.ends(claim(fickle, "first")) }
		if free == nil {
			fickle.before = func() {
				wait()
				time.Sleep(time.Nanosecond) // until it sleeps
			}
			go begin()
		} else {
			go begin()
			synctest.Wait()
			wait()
			synctest.Wait()
			free(t, q, held)
		}
		synctest.Wait()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		gaveUp = fickle.asked.Load() >= int64(n)
		if gaveUp && first.held() == nil && second.held() == nil {
			s := need(q.Get(ctx, "b"))
			if s.Worker != "first" { // else the log has the claim, but the worker did not wait for the answer
				t.Errorf("%s: it got %v, and the other one sleeps; the item is %s", what, first.err(), s.State)
			}
			time.Sleep(patientLease + time.Second)
			synctest.Wait()
			if second.held() == nil {
				t.Errorf("%s: the other one sleeps beyond its lease", what)
			}
		}
		if empty := (*tavern.EmptyError)(nil); first.err() != nil && !gaveUp && !errors.As(first.err(), &empty) {
			t.Errorf("%s: it got %v", what, first.err())
		}
		stop()
		synctest.Wait()
	})
	return gaveUp
}
