package tavern_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

func TestAgentDue(t *testing.T) {
	windows := tavern.AgentWindows{Archive: time.Hour, Purge: 24 * time.Hour}
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		decide := func(a *tavern.Agent, at time.Time) tavern.Decision {
			t.Helper()
			return need(tavern.DecideAgent(need(a.Info(ctx)), at, windows))
		}
		apply := func(d tavern.Decision) {
			t.Helper()
			need(st.AppendAll(ctx, d.Parts...))
		}
		now := need(st.LogTime(ctx))
		t.Run("an agent whose lease is over is lost", func(t *testing.T) {
			a := agentAt(t, st, "working", []string{"working"})
			if d := decide(a, now.Add(1000*time.Hour)); d.Parts != nil || !d.Next.IsZero() {
				t.Errorf("the decision without a lease is %+v", d)
			}
			l := need(a.Lease(ctx, "w", time.Minute))
			if d := decide(a, l.Until.Add(-time.Second)); d.Parts != nil || d.Next.Sub(l.Until).Abs() > time.Millisecond {
				t.Errorf("the decision before the lease's end is %+v", d)
			}
			_, err := a.Lease(ctx, "v", time.Minute)
			if e, ok := errors.AsType[*tally.LeaseError](err); !ok || e.Lease.Holder != "w" {
				t.Errorf("lease by another holder: %v", err)
			}
			stale := decide(a, l.Until.Add(time.Second))
			need(a.Lease(ctx, "w", time.Hour))
			if _, err := st.AppendAll(ctx, stale.Parts...); !errors.Is(err, log.ErrConflict) {
				t.Errorf("append a decision that a renewal has outdated: %v", err)
			}
			before := need(a.Info(ctx))
			d := decide(a, l.Until.Add(2*time.Hour))
			apply(d)
			n := agentRecords(ctx, st)
			apply(d)                                                                     // two daemons make the same decision
			later := need(tavern.DecideAgent(before, l.Until.Add(3*time.Hour), windows)) // and a third one, later
			if made, err := later.Make(ctx, st); made || err != nil {
				t.Errorf("the same decision, made later: %v, error %v", made, err)
			}
			i := need(a.Info(ctx))
			if i.State != tavern.AgentError || i.StateReason != "lost" || !strings.Contains(string(i.Node), "state: error\n") || agentRecords(ctx, st) != n {
				t.Errorf("got %+v", i)
			}
			if d := decide(a, l.Until.Add(1000*time.Hour)); d.Parts != nil || !d.Next.IsZero() {
				t.Errorf("a further decision is %+v", d)
			}
			must(t, a.SetState(ctx, tavern.AgentWorking, "once more"))
			if d := decide(a, l.Until.Add(1000*time.Hour)); d.Parts != nil || !d.Next.IsZero() {
				t.Errorf("the lease of an earlier holder leads to %s, and then to a look at %v", d.Why, d.Next)
			}
		})
		t.Run("D-31 a dead agent can be looked at until it is purged", func(t *testing.T) {
			a := agentAt(t, st, "dead", []string{"working", "waiting"})
			must(t, a.Reap(ctx, "nobody answers"))
			at := need(a.Info(ctx)).FinishedAt
			if d := decide(a, at.Add(time.Minute)); d.Parts != nil || !d.Next.Equal(at.Add(time.Hour)) {
				t.Errorf("the decision in the window is %+v", d)
			}
			apply(decide(a, at.Add(time.Hour)))
			i := need(a.Info(ctx))
			if i.State != tavern.AgentArchived || !i.Dead() || i.StateReason != "nobody answers" || i.Name != "dead" || len(i.Node) == 0 {
				t.Errorf("the archived agent is %+v", i)
			}
			listed := func(archived bool) (in bool) {
				for i, err := range tavern.Agents(ctx, st, tavern.AgentFilter{Archived: archived}) {
					in = in || need(i, err).ID == a.ID()
				}
				return in
			}
			if listed(false) || !listed(true) {
				t.Error("the list lacks the agent, or shows it as alive")
			}
			if d := decide(a, i.ArchivedAt.Add(23*time.Hour)); d.Parts != nil || !d.Next.Equal(i.ArchivedAt.Add(24*time.Hour)) {
				t.Errorf("the decision in the second window is %+v", d)
			}
			d := decide(a, i.ArchivedAt.Add(24*time.Hour))
			apply(d)
			apply(d)
			if _, err := a.Info(ctx); !errors.Is(err, tally.ErrNotFound) || listed(true) {
				t.Errorf("the purged agent: %v", err)
			}
			if _, err := st.Documents().Read(ctx, "agent", a.ID()); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("the purged file: %v", err)
			}
			if _, err := st.Documents().ReadAt(ctx, "agent", a.ID(), i.Revision.String()); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("the purged file as of an earlier offset: %v", err)
			}
			if d := need(tavern.DecideAgent(i, at.Add(time.Hour), tavern.AgentWindows{})); d.Parts != nil {
				t.Errorf("the decision without windows is %+v", d)
			}
		})
		t.Run("who archives an agent that was not stopped keeps it", func(t *testing.T) {
			a := agentAt(t, st, "kept", []string{"done", "archived"})
			if d := decide(a, now.Add(10000*time.Hour)); d.Parts != nil {
				t.Errorf("got %+v", d)
			}
		})
	})
}

// With random actions of agents and deciders: agents that are alive are neither archived nor purged, nothing happens
// before it is due, and each decision is made once.
func TestAgentDueLaw(t *testing.T) {
	windows := tavern.AgentWindows{Archive: time.Hour, Purge: time.Hour}
	rapid.Check(t, func(rt *rapid.T) {
		st := storetest.Memory(t, tally.Config{})
		ctx := t.Context()
		a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "x"}))
		clock := need(st.LogTime(ctx))
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			i, err := a.Info(ctx)
			if errors.Is(err, tally.ErrNotFound) {
				break
			}
			must(t, err)
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				clock = clock.Add(time.Duration(rapid.IntRange(-60, 120).Draw(rt, "minutes")) * time.Minute)
			case 1:
				to := rapid.SampledFrom([]string{"working", "waiting", "idle", "stopped:reaped", "stopped:dismissed", "archived", "done"}).Draw(rt, "to")
				if err := a.SetState(ctx, to, "so"); err != nil {
					if _, ok := errors.AsType[*tavern.TransitionError](err); !ok {
						rt.Fatal(err)
					}
				}
			case 2:
				if !i.Dead() {
					need(a.Lease(ctx, "w", time.Duration(rapid.IntRange(1, 90).Draw(rt, "lease"))*time.Minute))
				}
			default:
				d := need(tavern.DecideAgent(i, clock, windows))
				if len(d.Parts) == 0 {
					continue
				}
				if alive := !i.Dead(); alive != (d.Why == "lost") || d.Why == "purged" && i.State != tavern.AgentArchived {
					rt.Fatalf("%s was decided for the agent %+v", d.Why, i)
				}
				since := map[string]time.Time{"lost": i.Lease.Until, "archived": i.FinishedAt.Add(windows.Archive), "purged": i.ArchivedAt.Add(windows.Purge)}[d.Why]
				if since.After(clock) {
					rt.Fatalf("%s was decided at %v, due at %v", d.Why, clock, since)
				}
				need(st.AppendAll(ctx, d.Parts...))
				n := agentRecords(ctx, st)
				need(st.AppendAll(ctx, d.Parts...))
				if agentRecords(ctx, st) != n {
					rt.Fatal("one decision was made twice")
				}
				if again, err := a.Info(ctx); err == nil {
					if next := need(tavern.DecideAgent(again, clock, tavern.AgentWindows{Archive: time.Hour, Purge: 1 << 62})); slices.ContainsFunc(next.Parts, func(p log.Part) bool { return len(p.Events) > 0 }) && next.Why == d.Why {
						rt.Fatalf("%s was decided again", next.Why)
					}
				}
			}
		}
	})
}

// If the store was idle, the windows of an agent begin when it is stopped or archived, not at the last record before.
func TestAgentWindowsAfterRest(t *testing.T) {
	ctx := t.Context()
	w := newDaemonWorld(t)
	defer w.st.Close()
	a, windows := tavern.AgentOf(w.st, daemonAgent(1)), tavern.AgentWindows{Archive: time.Hour, Purge: time.Hour}
	for _, step := range []func() error{
		func() error { return a.Dismiss(ctx, "so") },
		func() error { return a.Archive(ctx, "so") },
	} {
		w.pass(14 * time.Hour)
		must(t, step())
		d := need(tavern.DecideAgent(need(a.Info(ctx)), w.now(), windows))
		if want := w.now().Add(time.Hour); len(d.Parts) > 0 || !d.Next.Equal(want) {
			t.Errorf("got %d parts and the next look at %v, want %v", len(d.Parts), d.Next, want)
		}
	}

	// A daemon that has just started judges by the last record, and dates its appends as the log does.
	c := tavern.AgentOf(w.st, daemonAgent(0))
	must(t, c.Dismiss(ctx, "so"))
	w.pass(2 * daemonWindows.Agents.Archive)
	need(w.st.Documents().Save(ctx, "doc", "a", tally.Write{Data: []byte("a")}))
	by := w.now()
	w.pass(14 * time.Hour)
	daemonDecides(t, daemonScan(w.st), by, daemonsOf(w.st, tavern.DaemonJanitor)...)
	if i := need(c.Info(ctx)); i.State != tavern.AgentArchived || !i.ArchivedAt.Equal(w.now()) {
		t.Errorf("the agent is %s, archived at %v, want %v", i.State, i.ArchivedAt, w.now())
	}

	b := tavern.AgentOf(w.st, daemonAgent(2))
	w.pass(14 * time.Hour)
	i := need(b.Info(ctx))
	must(t, b.Save(ctx, i.Revision, bytes.Replace(i.Node, []byte("state: idle"), []byte("state: stopped:dismissed"), 1)))
	if i := need(b.Info(ctx)); !i.FinishedAt.Equal(w.now()) {
		t.Errorf("an agent that its file stopped finished at %v, want %v", i.FinishedAt, w.now())
	}
}
