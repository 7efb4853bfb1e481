package tavern_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// A dated rule is one that a daemon follows when a time comes.
type datedRule struct {
	daemon string
	// begin makes the n-th thing to which the rule applies, and says what becomes due, and when.
	begin func(w *datedWorld, n int)
}

// datedWorld is a store with things that become due, and what must become of them.
type datedWorld struct {
	t     *testing.T
	st    *tally.Store
	while time.Duration    // of leases and until deadlines
	renew int              // how often a holder renews its lease
	want  map[string]dated // by subject and record
}

// dated is a time, or the time of another decision, which a daemon that begins later makes at its beginning, and a
// window after it.
type dated struct {
	at     time.Time
	window time.Duration
}

func (d dated) since(begun time.Time) time.Time { return later2(d.at, begun).Add(d.window) }

func (w *datedWorld) expect(sub events.Subject, what string, at time.Time) {
	w.expectAfter(sub, what, at, 0)
}

func (w *datedWorld) expectAfter(sub events.Subject, what string, at time.Time, window time.Duration) {
	w.want[sub.String()+" "+what] = dated{at, window}
}

func (w *datedWorld) document(kind, id string) events.Subject {
	return events.Document(w.st.Namespace(), kind, id)
}

// agent makes an agent that was stopped, and says what becomes of it. It returns when it was stopped.
func (w *datedWorld) agent(n int) (id string, stopped time.Time) {
	id = daemonAgent(n)
	a := need(tavern.NewAgent(w.t.Context(), w.st, tavern.NewAgentOptions{ID: id, Name: fmt.Sprint("agent ", n)}))
	must(w.t, a.Dismiss(w.t.Context(), "so"))
	stopped = need(a.Info(w.t.Context())).FinishedAt
	archived := stopped.Add(daemonWindows.Agents.Archive)
	w.expect(w.st.Session("agent/"+id).Subject(), "archived", archived)
	return id, stopped
}

// purged says that an agent is purged.
func (w *datedWorld) purged(id string, stopped time.Time) {
	w.expectAfter(w.document("agent", id), "deleted", stopped.Add(daemonWindows.Agents.Archive), daemonWindows.Agents.Purge)
}

// work holds a claim until its holder is lost, and returns the end of the lease.
func (w *datedWorld) work(c *tally.Claim) time.Time {
	until := c.Until
	for range w.renew {
		time.Sleep(w.while / 2)
		until = need(c.Renew(w.t.Context()))
	}
	return until
}

func (w *datedWorld) queue(n int, s tavern.QueueSettings) *tavern.Queue {
	q := tavern.QueueOf(w.st, fmt.Sprint("q", n))
	s.Lease = w.while
	must(w.t, q.Create(w.t.Context(), s))
	return q
}

func (w *datedWorld) item(q *tavern.Queue, id string) events.Subject {
	return w.st.Session(projector.ItemSession(q.ID(), id)).Subject()
}

func (w *datedWorld) flow(n int, template, owner string) *tavern.Flow {
	return need(tavern.WorkflowsOf(w.st).Start(w.t.Context(), template, tavern.FlowOptions{ID: fmt.Sprint("f", n), Owner: owner}))
}

// template2 has a state that is tried again once.
const template2 = `{"initial": "try", "states": {"try": {"to": ["done"], "recovery": {"restart": 2}}, "done": {"end": true}}}`

func newDatedWorld(t *testing.T, st *tally.Store, while time.Duration, renew int) *datedWorld {
	flowTemplates2(t, st)
	need(tavern.WorkflowsOf(st).Create(t.Context(), "again", []byte(template2)))
	return &datedWorld{t: t, st: st, while: while, renew: renew, want: make(map[string]dated)}
}

// later2 returns the later one of two times.
func later2(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

var datedRules = map[string]datedRule{
	"a document expires": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		until := time.Now().Add(w.while)
		need(w.st.Documents().Save(w.t.Context(), "note", fmt.Sprint(n), tally.Write{Data: []byte("x"), ExpiresAt: until}))
		w.expect(w.document("note", fmt.Sprint(n)), "deleted", until)
	}},
	"an agent that was stopped": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		w.purged(w.agent(n))
	}},
	"an overlay of a stopped agent": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		id := daemonAgent(n)
		need(tavern.OverlayOf(w.st, id).Write(w.t.Context(), "x", tally.Write{Data: []byte("x")}))
		time.Sleep(w.while)
		_, stopped := w.agent(n)
		w.purged(id, stopped)
		w.expect(w.document("overlay", id+"/x"), "deleted", stopped.Add(daemonWindows.Orphans))
	}},
	"a document of a stopped agent": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		id, stopped := w.agent(n)
		w.purged(id, stopped)
		time.Sleep(w.while / 4)
		need(w.st.Documents().Save(w.t.Context(), "doc", fmt.Sprint(n), tally.Write{Data: []byte("x"), Owner: id}))
		w.expect(w.document("doc", fmt.Sprint(n)), "deleted", later2(time.Now(), stopped.Add(daemonWindows.Orphans)))
	}},
	"a flow of a stopped agent": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		id, stopped := w.agent(n)
		w.purged(id, stopped)
		f := w.flow(n, "nested", "agent/"+id)
		child := tavern.FlowOf(w.st, need(f.State(w.t.Context())).Child)
		w.expect(f.Subject(), tavern.OutcomeOrphaned, stopped.Add(daemonWindows.Orphans))
		w.expectAfter(child.Subject(), tavern.OutcomeOrphaned, stopped.Add(daemonWindows.Orphans), daemonWindows.Orphans)
	}},
	"a flow of a stopped agent that a worker drives": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		id, stopped := w.agent(n)
		w.purged(id, stopped)
		f := w.flow(n, "inner", "agent/"+id)
		until := w.work(need(f.Claim(w.t.Context(), "w", w.while)).Claim)
		w.expect(f.Subject(), tavern.OutcomeOrphaned, later2(until, stopped.Add(daemonWindows.Orphans)))
	}},
	"a changeset of a stopped agent": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		w.changeset(n, false)
	}},
	"a changeset of a stopped agent that a worker merges": {tavern.DaemonJanitor, func(w *datedWorld, n int) {
		w.changeset(n, true)
	}},
	"an item expires": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		q, until := w.queue(n, tavern.QueueSettings{}), time.Now().Add(w.while)
		need(q.Enqueue(w.t.Context(), tavern.Item{ID: "i", ExpiresAt: until}))
		w.expect(w.item(q, "i"), projector.OutcomeExpired, until)
	}},
	"an item expires while a worker holds it": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		q, expires := w.queue(n, tavern.QueueSettings{}), time.Now().Add(w.while/2)
		need(q.Enqueue(w.t.Context(), tavern.Item{ID: "i", ExpiresAt: expires}))
		until := w.work(need(q.TryClaim(w.t.Context(), "w")).Claim)
		w.expect(w.item(q, "i"), projector.OutcomeExpired, until)
	}},
	"an item expires after its worker was lost": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		q, expires := w.queue(n, tavern.QueueSettings{}), time.Now().Add(time.Duration(w.renew+2)*w.while)
		need(q.Enqueue(w.t.Context(), tavern.Item{ID: "i", ExpiresAt: expires}))
		w.work(need(q.TryClaim(w.t.Context(), "w")).Claim)
		w.expect(w.item(q, "i"), projector.OutcomeExpired, expires)
	}},
	"the last attempt at an item": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		q := w.queue(n, tavern.QueueSettings{MaxAttempts: 2})
		need(q.Enqueue(w.t.Context(), tavern.Item{ID: "i"}))
		must(w.t, need(q.TryClaim(w.t.Context(), "w")).Fail(w.t.Context(), "so", true))
		until := w.work(need(q.TryClaim(w.t.Context(), "w")).Claim)
		w.expect(w.item(q, "i"), projector.OutcomeDead, until)
	}},
	"a flow whose worker is lost": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		f := w.flow(n, "again", "")
		until := w.work(need(f.Claim(w.t.Context(), "w", w.while)).Claim)
		w.expect(f.Subject(), "recovered", until)
	}},
	"a flow whose worker is lost again": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		f := w.flow(n, "again", "")
		must(w.t, need(f.Claim(w.t.Context(), "w", w.while)).Recover(w.t.Context(), "so"))
		until := w.work(need(f.Claim(w.t.Context(), "w", w.while)).Claim)
		w.expect(f.Subject(), "failed", until)
	}},
	"a flow whose worker is lost in the end": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		f := w.flow(n, "inner", "")
		c := need(f.Claim(w.t.Context(), "w", w.while))
		must(w.t, c.Move(w.t.Context(), "ran"))
		w.expect(f.Subject(), "completed", w.work(c.Claim))
	}},
	"a flow whose worker is lost while another flow runs": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		f := w.flow(n, "nested", "")
		w.expect(f.Subject(), "free", w.work(need(f.Claim(w.t.Context(), "w", w.while)).Claim))
	}},
	"a flow whose own flow failed while a worker drives it": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		f := w.flow(n, "nested", "")
		c := need(f.Claim(w.t.Context(), "w", w.while))
		must(w.t, tavern.FlowOf(w.st, need(f.State(w.t.Context())).Child).Fail(w.t.Context(), "so"))
		w.expect(f.Subject(), "failed", w.work(c.Claim))
	}},
	"an agent whose lease ends": {tavern.DaemonDispatch, func(w *datedWorld, n int) {
		a := need(tavern.NewAgent(w.t.Context(), w.st, tavern.NewAgentOptions{ID: daemonAgent(n), Name: fmt.Sprint("agent ", n)}))
		must(w.t, a.SetState(w.t.Context(), "working", "so"))
		until := w.work(need(a.Lease(w.t.Context(), "w", w.while)))
		w.expect(w.st.Session("agent/"+a.ID()).Subject(), "error", until)
	}},
	"a question without an answer": {tavern.DaemonDelivery, func(w *datedWorld, n int) {
		from, to := fmt.Sprint("from-", n), fmt.Sprint("to-", n)
		inboxAgent(w.t, w.st, from, "")
		inboxAgent(w.t, w.st, to, "")
		ask := inboxNote(from, "?")
		ask.Expects, ask.Deadline = "answer", time.Now().Add(w.while)
		inboxSend(w.t, w.st, to, ask)
		w.expect(projector.InboxSubject(w.st.Namespace(), from), tavern.MalfunctionOverdue, ask.Deadline)
	}},
}

// changeset makes a changeset of a stopped agent.
func (w *datedWorld) changeset(n int, isHeld bool) {
	ctx := w.t.Context()
	id, stopped := w.agent(n)
	w.purged(id, stopped)
	m := tavern.ChangesetsOf(w.st, fmt.Sprint("merge", n))
	must(w.t, m.Create(ctx, tavern.QueueSettings{Lease: w.while}))
	change := tavern.Change{Document: w.document("doc", "x"), Base: 1}
	need(m.Propose(ctx, tavern.Changeset{ID: "c", Owner: id, Changes: []tavern.Change{change}}))
	due := stopped.Add(daemonWindows.Orphans)
	if isHeld {
		due = later2(due, w.work(need(m.Queue().TryClaim(ctx, "w")).Claim))
	}
	w.expect(m.Queue().Subject(), tavern.OutcomeOrphaned, due) // a queue of changesets is serial
}

// became returns what a record of a daemon's decision says about its subject, or "" for a part that says nothing more.
func became(f projector.Fact) string {
	switch p := f.Payload.(type) {
	case *events.DocumentDeleted:
		return "deleted"
	case *events.RunFinished:
		return p.Outcome
	case *events.RunProgressed:
		return p.Kind
	case *events.RunStarted:
		return "free"
	case *events.SessionUpdated:
		status, _ := p.Set.Get("status")
		return strings.Trim(string(status), `"`)
	case *events.TurnAppended:
		for _, l := range projector.LettersOf(f) {
			return l.Malfunction
		}
	}
	return ""
}

// decided returns which thing a daemon that began at a time did not do when it was due.
func (w *datedWorld) decided(after events.Offset, begun time.Time) (wrong string) {
	left := maps.Clone(w.want)
	for rec, err := range w.st.Log.Read(w.t.Context(), events.Range{After: after}) {
		must(w.t, err)
		what := became(projector.Decode(rec))
		key := rec.Subject.String() + " " + what
		due, is := left[key]
		late := rec.Recorded.Sub(due.since(begun))
		switch {
		case is && late >= 0 && late <= time.Second:
			delete(left, key)
		case is:
			return fmt.Sprintf("%s %v after it was due", key, late)
		case what != "free" && what != "": // what another part of the decision says
			return fmt.Sprintf("%s at %v, which was not due", key, rec.Recorded)
		}
	}
	for what, due := range left {
		return fmt.Sprintf("%s was due at %v, and is not done", what, due.since(begun))
	}
	return ""
}

// playDated makes things to which rules of a daemon apply, runs it until all must be done, and returns a mistake, or "".
func playDated(t *testing.T, while time.Duration, renew int, names ...string) (wrong string) {
	t.Helper()
	onFakeClock(t, func(t *testing.T, st *tally.Store) {
		w := newDatedWorld(t, st, while, renew)
		for n, name := range names {
			datedRules[name].begin(w, n)
		}
		begun := need(st.Log.Durable(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Hour)
		defer stop()
		from := time.Now()
		must(t, runner.Run(ctx, st, "", daemonsOf(st, datedRules[names[0]].daemon), nil))
		wrong = w.decided(begun, from)
	})
	return wrong
}

func TestDaemonsOnTime(t *testing.T) {
	all := slices.Sorted(maps.Keys(datedRules))
	whiles := []time.Duration{7 * time.Minute, 100 * time.Minute}
	t.Run("net Q3 a daemon does each thing when it is due, without another event", func(t *testing.T) {
		for _, name := range all {
			for _, while := range whiles {
				for _, renew := range []int{0, 2} {
					if wrong := playDated(t, while, renew, name); wrong != "" {
						t.Errorf("%s, a lease of %v, renewed %d times: %s", name, while, renew, wrong)
					}
				}
			}
		}
	})
	t.Run("net Q3 several things that are due at any times do not delay each other", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			of := rapid.SampledFrom([]string{tavern.DaemonJanitor, tavern.DaemonDispatch}).Draw(rt, "daemon")
			some := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return datedRules[name].daemon != of })
			names := rapid.SliceOfN(rapid.SampledFrom(some), 2, 4).Draw(rt, "rules")
			if wrong := playDated(t, rapid.SampledFrom(whiles).Draw(rt, "while"), rapid.IntRange(0, 2).Draw(rt, "renew"), names...); wrong != "" {
				rt.Fatal(wrong)
			}
		})
	})
}
