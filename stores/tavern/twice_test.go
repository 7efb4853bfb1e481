package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// twiceWorld is a log with two processes that do the same.
type twiceWorld struct {
	t     *testing.T
	rt    *rapid.T
	here  *tally.Store
	there *tally.Store
	named int
}

func newTwiceWorld(t *testing.T, rt *rapid.T) (w *twiceWorld, end func()) {
	mem := memlog.New(memlog.Config{})
	open := func() *tally.Store {
		return need(tally.Open(t.Context(), need(log.OpenOn(t.Context(), restMem{mem}, log.Config{})), tally.Config{}))
	}
	w = &twiceWorld{t: t, rt: rt, here: open(), there: open()}
	return w, func() { must(t, errors.Join(w.here.Close(), w.there.Close(), mem.Close())) }
}

func (w *twiceWorld) name(what string) string {
	w.named++
	return fmt.Sprint(what, w.named)
}

// A process makes a call: the first one, on the handles that it has kept, or on new ones.
type process struct {
	*tally.Store
	*twiceWorld
	isFresh bool
}

// claim returns a process's claim on an item: what it has kept, or what it makes again from the fence.
func (p process) claim(queue string, c *tavern.Claim) *tavern.Claim {
	if !p.isFresh {
		return c
	}
	again, err := tavern.QueueOf(p.Store, queue).Resume(p.t.Context(), c.Item.ID, c.Fence)
	if _, over := errors.AsType[*tally.FencedError](err); err != nil && !over {
		p.rt.Fatalf("resume: %v", err)
	}
	return again
}

// A twiceCall is a call that is made twice with the same arguments. It returns its answer.
type twiceCall func(ctx context.Context, p process) (answer any, err error)

// isA returns a function that reports whether an error has a type.
func isA[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

// An exactlyOnce is a call that takes effect once, however often it is made.
type exactlyOnce struct {
	begin func(w *twiceWorld) twiceCall // makes what the call needs
	says  func(error) bool              // whether an error is the answer to the second call; nil: it has the answer of the first one
}

const twiceAgent = "8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f"

// held returns a call on a claim of a queue's item.
func held(isSerial bool, attempts int, do func(ctx context.Context, c *tavern.Claim) error) func(w *twiceWorld) twiceCall {
	return func(w *twiceWorld) twiceCall {
		ctx, id := w.t.Context(), w.name("q")
		q := tavern.QueueOf(w.here, id)
		must(w.t, q.Create(ctx, tavern.QueueSettings{MaxAttempts: attempts, Serial: isSerial}))
		need(q.Enqueue(ctx, tavern.Item{ID: "i"}))
		c := need(q.TryClaim(ctx, "w"))
		return func(ctx context.Context, p process) (any, error) { return nil, do(ctx, p.claim(id, c)) }
	}
}

// letters makes an inbox with messages of the person, and returns its receiver and the messages.
func (w *twiceWorld) letters(n int) (receiver string, list []tavern.Message) {
	receiver = w.name("to")
	must(w.t, tavern.InboxOf(w.here, receiver).Open(w.t.Context(), ""))
	for i := range n {
		list = append(list, need(tavern.InboxOf(w.here, receiver).Send(w.t.Context(), inboxNote(tavern.User, fmt.Sprint("text ", i)))))
	}
	return receiver, list
}

// started starts a flow of a template with the states a, b and an end.
func (w *twiceWorld) started() *tavern.Flow {
	id := w.name("m")
	need(tavern.WorkflowsOf(w.here).Create(w.t.Context(), id, []byte(`{"initial":"a","states":{"a":{"to":["b","a"]},"b":{"to":["end"]},"end":{"end":true}}}`)))
	return need(tavern.WorkflowsOf(w.here).Start(w.t.Context(), id, tavern.FlowOptions{ID: id}))
}

var exactlyOnces = map[string]exactlyOnce{
	"create a queue": {func(w *twiceWorld) twiceCall {
		id := w.name("q")
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.QueueOf(p.Store, id).Create(ctx, tavern.QueueSettings{})
		}
	}, func(err error) bool { return errors.Is(err, tally.ErrExists) }},
	"configure a queue": {func(w *twiceWorld) twiceCall {
		id := w.name("q")
		must(w.t, tavern.QueueOf(w.here, id).Create(w.t.Context(), tavern.QueueSettings{}))
		s := need(tavern.QueueOf(w.here, id).Settings(w.t.Context()))
		s.MaxAttempts = 7
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.QueueOf(p.Store, id).Configure(ctx, s)
		}
	}, isA[*tavern.QueueConflictError]},
	"queue an item": {func(w *twiceWorld) twiceCall {
		id := w.name("q")
		return func(ctx context.Context, p process) (any, error) {
			it, err := tavern.QueueOf(p.Store, id).Enqueue(ctx, tavern.Item{ID: "i", Body: []byte("x")})
			return it.Offset, err
		}
	}, nil},
	"queue items": {func(w *twiceWorld) twiceCall {
		id := w.name("q")
		need(tavern.QueueOf(w.here, id).EnqueueMany(w.t.Context(), queueItems(4)[1:3]...))
		return func(ctx context.Context, p process) (any, error) {
			_, err := tavern.QueueOf(p.Store, id).EnqueueMany(ctx, queueItems(4)...)
			return nil, err
		}
	}, nil},
	"requeue a dead item": {func(w *twiceWorld) twiceCall {
		ctx, id := w.t.Context(), w.name("q")
		q := tavern.QueueOf(w.here, id)
		need(q.Enqueue(ctx, tavern.Item{ID: "i"}))
		must(w.t, need(q.TryClaim(ctx, "w")).Fail(ctx, "so", false))
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.QueueOf(p.Store, id).Requeue(ctx, "i")
		}
	}, isA[*tavern.ItemStateError]},
	"finish":                 {held(false, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Finish(ctx, []byte("1")) }), nil},
	"finish, serial":         {held(true, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Finish(ctx, []byte("1")) }), nil},
	"fail":                   {held(false, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Fail(ctx, "so", true) }), nil},
	"fail, serial":           {held(true, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Fail(ctx, "so", true) }), nil},
	"fail for the last time": {held(false, 1, func(ctx context.Context, c *tavern.Claim) error { return c.Fail(ctx, "so", true) }), nil},
	"fail for good":          {held(false, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Fail(ctx, "so", false) }), nil},
	"release":                {held(false, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Release(ctx) }), nil},
	"release, serial":        {held(true, 5, func(ctx context.Context, c *tavern.Claim) error { return c.Release(ctx) }), nil},
	"append with a claim": {func(w *twiceWorld) twiceCall {
		ctx, id := w.t.Context(), w.name("q")
		q, part := tavern.QueueOf(w.here, id), inboxTurn(w.here, w.name("work"), "x")
		part.Events[0].ID = w.name("event")
		need(q.Enqueue(ctx, tavern.Item{ID: "i"}))
		c := need(q.TryClaim(ctx, "w"))
		return func(ctx context.Context, p process) (any, error) {
			acks, err := p.claim(id, c).Append(ctx, part)
			return acks[0].Last, err
		}
	}, nil},
	"open an inbox": {func(w *twiceWorld) twiceCall {
		to := w.name("to")
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.InboxOf(p.Store, to).Open(ctx, "a program")
		}
	}, nil},
	"archive an inbox": {func(w *twiceWorld) twiceCall {
		to, _ := w.letters(1)
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.InboxOf(p.Store, to).Archive(ctx, "so")
		}
	}, nil},
	"send with a key": {func(w *twiceWorld) twiceCall {
		to, _ := w.letters(1)
		m := inboxNote(tavern.User, "once")
		m.Key = w.name("key")
		return func(ctx context.Context, p process) (any, error) {
			m, err := tavern.InboxOf(p.Store, to).Send(ctx, m)
			return fmt.Sprint(m.ID, " ", m.Offset), err
		}
	}, nil},
	"send over the tree of agents": {func(w *twiceWorld) twiceCall {
		var ids []string
		for i := range 3 {
			ids = append(ids, fmt.Sprint(w.name("agent")))
			inboxAgent(w.t, w.here, ids[i], []string{"", ids[0], ids[0]}[i])
		}
		m := inboxNote(ids[1], "to its sibling")
		m.ID = w.name("message")
		return func(ctx context.Context, p process) (any, error) {
			m, err := tavern.InboxOf(p.Store, ids[2]).Send(ctx, m)
			return m.Offset, err
		}
	}, nil},
	"reply": {func(w *twiceWorld) twiceCall {
		to, list := w.letters(2)
		return func(ctx context.Context, p process) (any, error) {
			m, err := tavern.InboxOf(p.Store, to).Reply(ctx, list[1], tavern.Message{Body: tavern.Text("!")})
			return fmt.Sprint(m.ID, " ", m.Offset), err
		}
	}, nil},
	"amend": {func(w *twiceWorld) twiceCall {
		to, list := w.letters(2)
		return func(ctx context.Context, p process) (any, error) {
			m, err := tavern.InboxOf(p.Store, to).Amend(ctx, list[0].ID, list[0].Revision, tavern.Text("better"))
			return m.Revision, err
		}
	}, nil},
	"see": {func(w *twiceWorld) twiceCall {
		to, list := w.letters(3)
		kept, at := tavern.InboxOf(w.here, to), list[w.named%3].Offset
		return func(ctx context.Context, p process) (any, error) {
			in := kept
			if p.isFresh {
				in = tavern.InboxOf(p.Store, to)
			}
			return nil, in.Seen(ctx, at)
		}
	}, nil},
	"see with one's own work": {func(w *twiceWorld) twiceCall {
		to, list := w.letters(3)
		kept, at, session := tavern.InboxOf(w.here, to), list[w.named%3].Offset, w.name("work")
		return func(ctx context.Context, p process) (any, error) {
			in := kept
			if p.isFresh {
				in = tavern.InboxOf(p.Store, to)
			}
			part, err := in.SeenPart(ctx, at)
			if err == nil {
				_, err = p.Store.AppendAll(ctx, part, inboxTurn(p.Store, session, "done"))
			}
			return nil, err
		}
	}, isA[*tavern.SeenError]},
	"see with one's own work, both decided before": {func(w *twiceWorld) twiceCall {
		to, list := w.letters(3)
		at, session := list[w.named%3].Offset, w.name("work")
		parts := map[*tally.Store]log.Part{}
		for _, st := range []*tally.Store{w.here, w.there} {
			parts[st] = need(tavern.InboxOf(st, to).SeenPart(w.t.Context(), at))
		}
		one := need(tavern.InboxOf(w.here, to).SeenPart(w.t.Context(), at))
		return func(ctx context.Context, p process) (any, error) {
			part := parts[p.Store]
			if !p.isFresh {
				part, one = one, part // the second call in one process has a part of its own, too
			}
			_, err := p.Store.AppendAll(ctx, part, inboxTurn(p.Store, session, "done"))
			return nil, err
		}
	}, func(err error) bool { return errors.Is(err, log.ErrConflict) }},
	"start a flow": {func(w *twiceWorld) twiceCall {
		f := w.started()
		id := w.name("f")
		return func(ctx context.Context, p process) (any, error) {
			_, err := tavern.WorkflowsOf(p.Store).Start(ctx, f.ID(), tavern.FlowOptions{ID: id, Owner: twiceAgent})
			return nil, err
		}
	}, nil},
	"move a flow": {func(w *twiceWorld) twiceCall {
		f := w.started()
		s := need(f.State(w.t.Context()))
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.FlowOf(p.Store, f.ID()).MoveFrom(ctx, s, []string{"a", "b"}[w.named%2])
		}
	}, nil},
	"end a flow": {func(w *twiceWorld) twiceCall {
		f := w.started()
		must(w.t, f.Move(w.t.Context(), "b"))
		must(w.t, f.Move(w.t.Context(), "end"))
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.FlowOf(p.Store, f.ID()).End(ctx, events.Raw("1"))
		}
	}, nil},
	"fail a flow": {func(w *twiceWorld) twiceCall {
		f := w.started()
		return func(ctx context.Context, p process) (any, error) {
			return nil, tavern.FlowOf(p.Store, f.ID()).Fail(ctx, "so")
		}
	}, nil},
	"recover a flow": {func(w *twiceWorld) twiceCall {
		f := w.started()
		need(f.Claim(w.t.Context(), "w", time.Nanosecond))
		return func(ctx context.Context, p process) (any, error) {
			_, err := tavern.FlowOf(p.Store, f.ID()).Recover(ctx)
			return nil, err
		}
	}, nil},
}

// meanwhile is what happens between the two calls.
func (w *twiceWorld) meanwhile() {
	ctx := w.t.Context()
	st := []*tally.Store{w.here, w.there}[rapid.IntRange(0, 1).Draw(w.rt, "by")]
	var ids []string
	for info, err := range st.Subjects(ctx, events.KindSession) {
		must(w.t, err)
		ids = append(ids, info.Subject.ID)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if queue, is := strings.CutPrefix(id, "queue/"); is {
			if _, err := tavern.QueueOf(st, queue).TryClaim(ctx, "another"); err != nil && !isA[*tavern.EmptyError](err) {
				w.rt.Fatal(err)
			}
		}
		if to, is := strings.CutPrefix(id, "inbox/"); is {
			if _, err := tavern.InboxOf(st, to).Send(ctx, inboxNote(tavern.User, "in between")); err != nil && !errors.Is(err, tavern.ErrReceiver) {
				w.rt.Fatal(err)
			}
		}
	}
}

func TestTwice(t *testing.T) {
	all := slices.Sorted(maps.Keys(exactlyOnces))
	once := func(rt *rapid.T, w *twiceWorld, what string) {
		call := exactlyOnces[what]
		do := call.begin(w)
		first, err := do(t.Context(), process{w.here, w, false})
		if err != nil {
			rt.Fatalf("%s: %v", what, err)
		}
		if rapid.IntRange(0, 2).Draw(rt, "meanwhile") == 0 {
			w.meanwhile()
		}
		n := inboxRecords(t, w.here)
		by := map[string]process{"the same handle": {w.here, w, false}, "another handle": {w.here, w, true}, "another process": {w.there, w, true}}
		for _, who := range rapid.Permutation(slices.Sorted(maps.Keys(by))).Draw(rt, "who") {
			again, err := do(t.Context(), by[who])
			says := call.says
			if says == nil {
				says = func(err error) bool { return err == nil && again == first }
			}
			if !says(err) {
				rt.Fatalf("%s, again by %s: %v, error %v; the first answer was %v", what, who, again, err, first)
			}
			if now := inboxRecords(t, w.here); now != n {
				rt.Fatalf("%s, again by %s: %d records were appended", what, who, now-n)
			}
		}
	}
	t.Run("net Q2 a call that is repeated changes nothing, and says so", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			w, end := newTwiceWorld(t, rt)
			defer end()
			for _, what := range rapid.SliceOfN(rapid.SampledFrom(all), 8, 8).Draw(rt, "calls") {
				once(rt, w, what)
			}
		})
	})
}
