package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// TestLines runs the acceptance lines that concern several parts of a team.
func TestLines(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-34 a rewind keeps what was, and a branch is independent", func(t *testing.T) { lineBranches(t, st) })
		t.Run("D-19 the order of a merge queue is visible", func(t *testing.T) { lineMergeOrder(t, st) })
		t.Run("D-38 D-43 orphans are listed until they are cleaned up, changesets among them", func(t *testing.T) { lineOrphans(t, st) })
		t.Run("D-63 several daemons at once decide each thing once", func(t *testing.T) { lineDaemons(t, st) })
	})
}

// lineBranches: an agent's conversation can be rewound and branched, but its inbox, a queue, an item and a flow cannot.
func lineBranches(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	s := st.Session("agent/branches")
	must1(s.Create(ctx, events.SessionCreated{Kind: events.KindAgent, CreatedAt: "2026-08-22T10:00:00Z"}))
	said := func(s *tally.Session, position string) (list []string) {
		t.Helper()
		thread := need(s.Load(ctx, position)).Threads[events.MainThread]
		if thread == nil {
			return nil
		}
		for _, turn := range thread.Turns {
			list = append(list, string(turn.Raw))
		}
		return list
	}
	for _, text := range []string{`"one"`, `"two"`, `"three"`} {
		must1(s.AppendTurns(ctx, events.MainThread, []byte(text)))
	}
	whole := need(s.Load(ctx, "")).Offset()
	branch := need2(s.Fork(ctx, "#2", "agent/branch"))
	move := need(s.PlanRewind(ctx, "#1", "again"))
	must1(s.Move(ctx, move))
	must1(s.AppendTurns(ctx, events.MainThread, []byte(`"other"`)))
	must1(branch.AppendTurns(ctx, events.MainThread, []byte(`"mine"`)))
	for name, x := range map[string]struct{ have, want []string }{
		"rewound":             {said(s, ""), []string{`"one"`, `"other"`}},
		"as it was before":    {said(s, whole.String()), []string{`"one"`, `"two"`, `"three"`}},
		"the branch":          {said(branch, ""), []string{`"one"`, `"two"`, `"mine"`}},
		"the branch at first": {said(branch, "start"), nil},
	} {
		if !slices.Equal(x.have, x.want) {
			t.Errorf("%s: got %q, want %q", name, x.have, x.want)
		}
	}
	q := tavern.QueueOf(st, "branches")
	need(q.Enqueue(ctx, tavern.Item{ID: "a"}))
	need(q.TryClaim(ctx, "w"))
	inboxSend(t, st, "branches", inboxNote("a", "mail"))
	flowTemplates(t, st)
	flowStart(t, st, "suite", "branches")
	for _, id := range []string{"inbox/branches", "queue/branches", projector.ItemSession("branches", "a"), "flow/branches"} {
		flowRefused[*tally.KindError](t, st, "a rewind of "+id, func() error { return second(st.Session(id).PlanRewind(ctx, "start", "")) })
		flowRefused[*tally.KindError](t, st, "a branch of "+id, func() error { return third(st.Session(id).Fork(ctx, "head", "")) })
	}
}

// third returns the error of a call with two other results.
func third[T, U any](_ T, _ U, err error) error { return err }

// lineMergeOrder: readers see the order of changesets before and during their merge.
func lineMergeOrder(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	k := changesetKit{t, st, tavern.ChangesetsOf(st, "order of merging")}
	must(t, k.m.Create(ctx, tavern.QueueSettings{}))
	for _, id := range []string{"c", "a", "b"} {
		need(k.m.Propose(ctx, tavern.Changeset{ID: id, Changes: []tavern.Change{k.change("order/"+id, 0, id)}}))
	}
	seen := func() (ids []string) {
		tavern.ForgetQueues(st)
		list, _, err := tavern.ChangesetsOf(st, "order of merging").List(ctx, tavern.ListQuery{})
		must(t, err)
		for _, s := range list {
			ids = append(ids, s.Changeset.ID+" "+string(s.Item.State))
		}
		return ids
	}
	if got := seen(); !slices.Equal(got, []string{"c ready", "a ready", "b ready"}) {
		t.Errorf("the order at first is %q", got)
	}
	m := need(k.m.TryClaim(ctx, "merger"))
	if got := seen(); !slices.Equal(got, []string{"c claimed", "a ready", "b ready"}) {
		t.Errorf("the order during a merge is %q", got)
	}
	if _, err := k.m.TryClaim(ctx, "another"); err == nil {
		t.Error("two changesets were claimed for a merge at once")
	}
	must(t, m.Apply(ctx))
	if got := seen(); !slices.Equal(got, []string{"a ready", "b ready"}) {
		t.Errorf("the order in the end is %q", got)
	}
}

// lineOrphans: the belongings of an agent are listed when it is gone. After the clean-up, only those of living agents
// are left.
func lineOrphans(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	gone, alive := agentAt(t, st, "gone", []string{"working", "waiting"}), agentAt(t, st, "here", []string{"working", "waiting"})
	k := changesetKit{t, st, tavern.ChangesetsOf(st, "of agents")}
	must(t, k.m.Create(ctx, tavern.QueueSettings{}))
	now := need(st.LogTime(ctx))
	for _, a := range []*tavern.Agent{gone, alive} {
		owner := "agent/" + a.ID()
		need(tavern.OverlayOf(st, a.ID()).Write(ctx, "x", tally.Write{Data: []byte("x")}))
		need(st.Documents().Create(ctx, "doc", "orphan of "+a.ID(), tally.Write{Data: []byte("x"), Owner: owner}))
		flowTemplatesOnce(t, st)
		need(tavern.WorkflowsOf(st).Start(ctx, "suite", tavern.FlowOptions{ID: "orphan of " + a.ID(), Owner: owner}))
		need(k.m.Propose(ctx, tavern.Changeset{ID: "of " + a.ID(), Owner: owner, Changes: []tavern.Change{k.change("of "+a.ID(), 0, "x")}}))
	}
	need(k.m.Propose(ctx, tavern.Changeset{ID: "old", ExpiresAt: now.Add(time.Minute), Changes: []tavern.Change{k.change("old", 0, "x")}}))
	work, daemons := daemonScan(st), daemonsOf(st)
	mine := func() (list []string) {
		for _, d := range daemonOrphans(t, work) {
			list = append(list, d.Subject.String())
		}
		slices.Sort(list)
		return list
	}
	if list := mine(); len(list) > 0 {
		t.Errorf("the orphans while both agents live are %q", list)
	}
	must(t, gone.Reap(ctx, "nobody answers"))
	want := []string{events.Document("", "doc", "orphan of "+gone.ID()).String(), events.Document("", "overlay", "a1/of "+gone.ID()).String(),
		events.Document("", "overlay", gone.ID()+"/x").String(), events.Session("", "flow/orphan of "+gone.ID()).String(), events.Session("", projector.ItemSession("of agents", "of "+gone.ID())).String()}
	want = slices.DeleteFunc(want, func(s string) bool { return s == want[1] }) // the owner of a1 is not gone
	slices.Sort(want)
	if diff := cmp.Diff(want, mine()); diff != "" {
		t.Errorf("(-want +have)\n%s", diff)
	}
	at := need(gone.Info(ctx)).FinishedAt
	for n := range 3 {
		daemonDecides(t, work, at.Add(time.Duration(n+1)*(time.Hour+time.Minute)), daemons...)
	}
	if list := mine(); len(list) > 0 {
		t.Errorf("the orphans after the windows are %q", list)
	}
	outcome := func(id string) string { return need(k.m.Queue().Get(ctx, id)).Outcome }
	if outcome("old") != projector.OutcomeExpired || outcome("of "+alive.ID()) != "" || outcome("of "+gone.ID()) == "" {
		t.Errorf("the changesets ended %q, %q and %q", outcome("old"), outcome("of "+alive.ID()), outcome("of "+gone.ID()))
	}
	need(tavern.OverlayOf(st, alive.ID()).Read(ctx, "x"))
	need(st.Documents().Read(ctx, "doc", "orphan of "+alive.ID()))
	flowIs(t, tavern.FlowOf(st, "orphan of "+alive.ID()), "run", 1, "")
}

// flowTemplatesOnce writes the templates if they do not exist.
func flowTemplatesOnce(t *testing.T, st *tally.Store) {
	if _, err := tavern.WorkflowsOf(st).Read(t.Context(), "suite"); errors.Is(err, tally.ErrNotFound) {
		flowTemplates(t, st)
	}
}

// lineDaemons: four sets of daemons look at the same time at a store with due work of each kind.
func lineDaemons(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	flowTemplatesOnce(t, st)
	q := tavern.QueueOf(st, "tended")
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: time.Minute, MaxAttempts: 1}))
	inboxAgent(t, st, "asker", "")
	const each = 4
	var left []*tavern.Agent
	for n := range each {
		ask := inboxNote("asker", fmt.Sprint("question ", n))
		ask.Expects, ask.Deadline = "answer", need(st.LogTime(ctx)).Add(time.Minute)
		inboxAgent(t, st, fmt.Sprint("asked-", n), "")
		inboxSend(t, st, fmt.Sprint("asked-", n), ask)
		need(q.Enqueue(ctx, tavern.Item{ID: fmt.Sprint(n)}))
		need(q.TryClaim(ctx, "w"))
		must1(flowStart(t, st, "release", fmt.Sprint("tended-", n)).Claim(ctx, "w", time.Minute))
		a := agentAt(t, st, fmt.Sprint("left ", n), []string{"working", "waiting"})
		need(st.Documents().Create(ctx, "doc", "of "+a.ID(), tally.Write{Data: []byte("x"), Owner: "agent/" + a.ID()}))
		must(t, a.Reap(ctx, "so"))
		left = append(left, a)
	}
	far := need(st.LogTime(ctx)).Add(2 * time.Hour)
	var looking sync.WaitGroup
	for range 4 {
		work, daemons := daemonScan(st), daemonsOf(st)
		looking.Go(func() {
			for range 3 {
				for _, d := range daemons {
					res, err := d.Decide(ctx, work, far)
					if err = errors.Join(err, res.Err); err != nil && !errors.Is(err, log.ErrConflict) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			}
		})
	}
	looking.Wait()
	daemonDecides(t, daemonScan(st), far, daemonsOf(st)...)
	before := inboxRecords(t, st)
	daemonDecides(t, daemonScan(st), far, daemonsOf(st)...)
	if n := inboxRecords(t, st); n != before {
		t.Errorf("a second look added %d records", n-before)
	}
	if mail := inboxAll(t, st, "asker"); len(mail) != each {
		t.Errorf("the sender got %d notices, want %d", len(mail), each)
	}
	for n := range each {
		if s := need(q.Get(ctx, fmt.Sprint(n))); s.State != tavern.ItemDead || len(s.History) != 1 {
			t.Errorf("got %+v", s)
		}
		if s := need(tavern.FlowOf(st, fmt.Sprint("tended-", n)).State(ctx)); s.Step != 2 || s.Attempt != 2 {
			t.Errorf("the flow is in step %d, attempt %d", s.Step, s.Attempt)
		}
		if i := need(left[n].Info(ctx)); i.State != tavern.AgentArchived {
			t.Errorf("the agent is %s", i.State)
		}
		revisions := 0
		for rec, err := range st.Log.Read(ctx, events.Range{Subject: events.Document(st.Namespace(), "doc", "of "+left[n].ID())}) {
			must(t, err)
			if rec.Type == events.TypeDocumentDeleted {
				revisions++
			}
		}
		if revisions != 1 {
			t.Errorf("the document of the ended agent was deleted %d times", revisions)
		}
	}
}
