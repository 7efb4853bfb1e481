package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// D-63: random actions of agents, flows, messages and queues, with several daemons, on a log that loses publications
// and acknowledgements, and with daemons killed at any publication, leave the same log as one daemon that never dies.
// A9: the belongings of living owners stay, two windows after an end no orphan is left, and a second pass appends
// nothing.
func TestDaemonsLaw(t *testing.T) {
	t.Run("D-63 D-30 nothing is decided twice, and nothing of the living is gone", daemonsLaw)
}

func daemonsLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := rapid.SliceOfN(rapid.Custom(drawDaemonStep), 3, 14).Draw(rt, "plan")
		one, many := newDaemonWorld(t), newDaemonWorld(t)
		view, end := daemonViewOf(t, many.st) // says where to look, as the log itself would
		defer end()
		many.work = view
		defer one.st.Close()
		defer many.st.Close()
		tick := func(d time.Duration) {
			one.pass(d)
			many.pass(d)
			one.settle(t, nil)
			many.settle(t, drawDaemonKills(rt))
		}
		for i, s := range plan {
			if a, b := one.do(t, s, i), many.do(t, s, i); a != b {
				rt.Fatalf("step %d, %+v: one daemon leaves %s, several leave %s", i, s, a, b)
			}
			if s.what == "tick" {
				tick(time.Duration(s.minutes) * time.Minute)
			}
		}
		one.checkLiving(rt, t)
		for range 4 { // windows of ended agents, then of what they owned
			tick(time.Hour + time.Minute)
		}
		tick(25 * time.Hour)
		if diff := cmp.Diff(one.told(t), many.told(t)); diff != "" {
			rt.Fatalf("%+v\n%s", plan, diff)
		}
		for _, w := range []*daemonWorld{one, many} {
			w.checkLiving(rt, t)
			if list := daemonOrphans(t, daemonScan(w.st)); len(list) > 0 {
				rt.Fatalf("the orphans are %v", list)
			}
			n := inboxRecords(t, w.st)
			w.settle(t, nil)
			if inboxRecords(t, w.st) != n {
				rt.Fatal("a second pass appended records")
			}
		}
	})
}

// daemonStep is a random action.
type daemonStep struct {
	what    string
	a, b    int // agents
	minutes int
}

func drawDaemonStep(t *rapid.T) daemonStep {
	return daemonStep{
		what:    rapid.SampledFrom([]string{"tick", "tick", "work", "lease", "wait", "reap", "dismiss", "ask", "ask", "note", "answer", "flow", "claim", "overlay", "doc", "note expires", "enqueue", "enqueue", "change", "take"}).Draw(t, "what"),
		a:       rapid.IntRange(0, 2).Draw(t, "a"),
		b:       rapid.IntRange(0, 2).Draw(t, "b"),
		minutes: rapid.IntRange(1, 90).Draw(t, "minutes"),
	}
}

// daemonKills are publications at which daemons die.
type daemonKills struct {
	at     []int
	faults []logtest.Fault
}

func drawDaemonKills(t *rapid.T) *daemonKills {
	return &daemonKills{
		at:     rapid.SliceOfN(rapid.IntRange(1, 6), 1, 4).Draw(t, "kills"),
		faults: rapid.SliceOfN(rapid.SampledFrom([]logtest.Fault{logtest.None, logtest.None, logtest.Dropped, logtest.AckLost}), 8, 8).Draw(t, "faults"),
	}
}

// daemonWorld is a store with a clock of its own.
type daemonWorld struct {
	st    *tally.Store
	meet  *meeting
	work  daemon.Work
	clock atomic.Int64 // nanoseconds
	kills atomic.Pointer[daemonKills]
	count atomic.Int64
	kill  atomic.Pointer[func(n int)]
	asked []tavern.Message
}

func (w *daemonWorld) now() time.Time { return time.Unix(0, w.clock.Load()).UTC() }

func (w *daemonWorld) pass(d time.Duration) { w.clock.Add(int64(d)) }

func daemonAgent(i int) string { return fmt.Sprintf("%08d-ceea-467f-a0e6-6c1b1b1f1b1f", i) }

func newDaemonWorld(t *testing.T) *daemonWorld {
	w := new(daemonWorld)
	w.clock.Store(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	mem := memlog.New(memlog.Config{Now: w.now})
	w.meet = &meeting{Backend: &logtest.Faulty{Backend: mem, Next: w.next}}
	l := logtest.OpenOn(t, w.meet, log.Config{Now: w.now})
	w.st = need(tally.Open(t.Context(), l, tally.Config{}))
	w.work = daemonScan(w.st)
	for i := range 3 {
		need(tavern.NewAgent(t.Context(), w.st, tavern.NewAgentOptions{ID: daemonAgent(i), Name: fmt.Sprint("agent ", i)}))
	}
	flowTemplates2(t, w.st)
	must(t, tavern.QueueOf(w.st, "q").Create(t.Context(), tavern.QueueSettings{Lease: 10 * time.Minute, MaxAttempts: 2}))
	must(t, tavern.ChangesetsOf(w.st, "merge").Create(t.Context(), tavern.QueueSettings{}))
	return w
}

// next returns the fault of a publication. Without kills no publication fails.
func (w *daemonWorld) next() logtest.Fault {
	k := w.kills.Load()
	if k == nil {
		return logtest.None
	}
	n := int(w.count.Add(1))
	if kill := w.kill.Load(); kill != nil {
		(*kill)(n)
	}
	return k.faults[n%len(k.faults)]
}

// do does a step, and returns its result.
func (w *daemonWorld) do(t *testing.T, s daemonStep, n int) string {
	ctx, st := t.Context(), w.st
	a, b := tavern.AgentOf(st, daemonAgent(s.a)), daemonAgent(s.b)
	while := time.Duration(s.minutes) * time.Minute
	var err error
	switch s.what {
	case "work":
		err = a.SetState(ctx, "working", "so")
	case "wait":
		err = a.SetState(ctx, "waiting", "so")
	case "reap":
		err = a.Reap(ctx, "so")
	case "dismiss":
		err = a.Dismiss(ctx, "so")
	case "lease":
		if i, ierr := a.Info(ctx); ierr == nil && !i.Dead() {
			_, err = a.Lease(ctx, "w", while)
		}
	case "ask", "note":
		m := inboxNote(a.ID(), fmt.Sprint("text ", n))
		m.Key = fmt.Sprint(n)
		if s.what == "ask" {
			m.Expects, m.Deadline = "answer", w.now().Add(while)
		}
		m, err = tavern.InboxOf(st, b).Send(ctx, m)
		if err == nil && s.what == "ask" {
			w.asked = append(w.asked, m)
		}
	case "answer":
		if len(w.asked) > 0 {
			m := w.asked[s.a%len(w.asked)]
			_, err = tavern.InboxOf(st, m.To).Reply(ctx, m, tavern.Message{Body: tavern.Text("!")})
		}
	case "flow":
		_, err = tavern.WorkflowsOf(st).Start(ctx, "nested", tavern.FlowOptions{ID: fmt.Sprint("f", s.b), Owner: "agent/" + a.ID()})
	case "claim":
		_, err = tavern.FlowOf(st, fmt.Sprint("f", s.b, []string{"", "#1"}[s.a%2])).Claim(ctx, "w", while)
	case "overlay":
		_, err = tavern.OverlayOf(st, a.ID()).Write(ctx, fmt.Sprint(s.b), tally.Write{Data: []byte("x")})
	case "doc":
		_, err = st.Documents().Save(ctx, "doc", fmt.Sprint(s.b), tally.Write{Data: []byte("x"), Owner: a.ID()})
	case "note expires":
		_, err = st.Documents().Save(ctx, "note", fmt.Sprint(s.b), tally.Write{Data: []byte("x"), ExpiresAt: w.now().Add(while)})
	case "enqueue":
		it := tavern.Item{ID: fmt.Sprint(n), Body: tavern.Text("x")}
		if s.a == 0 {
			it.ExpiresAt = w.now().Add(while)
		}
		_, err = tavern.QueueOf(st, "q").Enqueue(ctx, it)
	case "change":
		change := tavern.Change{Document: events.Document(st.Namespace(), "doc", "x"), Base: 1}
		_, err = tavern.ChangesetsOf(st, "merge").Propose(ctx, tavern.Changeset{ID: fmt.Sprint(n), Owner: a.ID(), Changes: []tavern.Change{change}})
	case "take":
		_, err = tavern.QueueOf(st, "q").TryClaim(ctx, "w")
	}
	return fmt.Sprintf("%T", err)
}

// settle runs daemons until nothing is due: one set, or as many sets at once as kills has, and then one that continues
// on the same faulty log.
func (w *daemonWorld) settle(t *testing.T, kills *daemonKills) {
	t.Helper()
	now := w.now()
	if kills == nil {
		daemonDecides(t, w.work, now, daemonsOf(w.st)...)
		return
	}
	w.count.Store(0)
	w.kills.Store(kills)
	w.meet.expect(len(kills.at))
	defer w.kills.Store(nil)
	var running sync.WaitGroup
	var die []context.CancelFunc
	for range kills.at {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		die = append(die, cancel)
		running.Go(func() {
			defer w.meet.leave()
			work := daemonScan(w.st) // it knows only the log
			for _, d := range daemonsOf(w.st) {
				res, err := d.Decide(ctx, work, now)
				if err = errors.Join(err, res.Err); err != nil && ctx.Err() == nil && !errors.Is(err, log.ErrUnknown) {
					t.Error(err)
				}
			}
		})
	}
	kill := func(n int) {
		for i, at := range kills.at {
			if n == at {
				die[i]()
			}
		}
	}
	w.kill.Store(&kill)
	running.Wait()
	w.kill.Store(nil)
	for tries, quiet := 0, false; !quiet; tries++ {
		quiet = true
		for _, d := range daemonsOf(w.st) {
			res, err := d.Decide(t.Context(), w.work, now)
			if err = errors.Join(err, res.Err); err != nil && !errors.Is(err, log.ErrUnknown) || tries > 100 {
				t.Fatal(err, res)
			}
			quiet = quiet && err == nil && len(res.Made)+res.Refused+res.Failed == 0
		}
	}
}

// told returns the log's statements about each subject, without times, claims and ids.
func (w *daemonWorld) told(t *testing.T) map[string][]string {
	all := make(map[string][]string)
	for rec, err := range w.st.Log.Read(t.Context(), events.Range{}) {
		must(t, err)
		if rec.Subject.Kind == events.KindUnit || rec.Subject.Kind == events.KindBlob {
			continue
		}
		f := projector.Decode(rec)
		what := strings.TrimPrefix(rec.Type, "tally.")
		switch p := f.Payload.(type) {
		case *events.SessionUpdated:
			status, _ := p.Set.Get("status")
			what += " " + string(status) + " " + p.Reason
		case *events.TurnAppended:
			for _, l := range projector.LettersOf(f) {
				what += fmt.Sprint(" ", l.Type, " ", l.From, " ", l.ReplyTo, " ", l.Malfunction)
			}
		case *events.RunFinished:
			what += " " + p.Outcome
		case *events.RunProgressed:
			what += fmt.Sprint(" ", p.Kind, " ", p.Step, " ", p.Note)
		case *events.DocumentDeleted:
			what += " " + p.Reason
		}
		all[rec.Subject.String()] = append(all[rec.Subject.String()], what)
	}
	for sub, list := range all { // several daemons may notify one sender at the same time, in any order
		if strings.HasPrefix(sub, "session/inbox") {
			slices.Sort(list)
		}
	}
	return all
}

// checkLiving checks that nothing of a living agent is gone.
func (w *daemonWorld) checkLiving(rt *rapid.T, t *testing.T) {
	ctx := t.Context()
	alive := make(map[string]bool)
	for i, err := range tavern.Agents(ctx, w.st, tavern.AgentFilter{}) {
		must(t, err)
		alive[i.ID] = !i.Dead()
	}
	list, _, err := w.st.Documents().List(ctx, projector.DocumentQuery{Deleted: true})
	must(t, err)
	for _, d := range list {
		if d.Deleted && alive[d.Owner] {
			rt.Fatalf("the document %s of the living %s is %s", d.Subject, d.Owner, d.Reason)
		}
	}
	for f := range 3 {
		s, err := tavern.FlowOf(w.st, fmt.Sprint("f", f)).State(ctx)
		if err == nil && s.Outcome() == tavern.OutcomeOrphaned && alive[strings.TrimPrefix(s.Run.Owner, "agent/")] {
			rt.Fatalf("flow %s of %s was stopped", s.ID, s.Run.Owner)
		}
	}
}
