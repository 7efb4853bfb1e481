package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func TestDaemons(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-30 D-38 D-43 what a reaped agent had goes in the windows", func(t *testing.T) { daemonsJanitor(t, st) })
		t.Run("a document that is expired is deleted", func(t *testing.T) { daemonsExpired(t, st) })
		t.Run("D-45 the sender is told, once, of an answer that is late", func(t *testing.T) { daemonsOverdue(t, st) })
		t.Run("D-45 the sender is told, once, of a message that nobody takes", func(t *testing.T) { daemonsRefused(t, st) })
		t.Run("D-20 the sender is told, once, of a message to one who is gone", func(t *testing.T) { daemonsGone(t, st) })
		t.Run("D-18 an item whose attempts are used up is dead", func(t *testing.T) { daemonsQueue(t, st) })
		t.Run("D-22 a flow whose worker was lost is recovered", func(t *testing.T) { daemonsFlow(t, st) })
	})
}

func daemonsOverdue(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	for _, id := range []string{"late-a", "late-b"} {
		inboxAgent(t, st, id, "")
	}
	now := need(st.LogTime(ctx)).Truncate(time.Second)
	ask := inboxNote("late-a", "?")
	ask.Expects, ask.Deadline = "answer", now.Add(time.Hour)
	inboxSend(t, st, "late-b", ask)
	answered := inboxSend(t, st, "late-b", ask)
	need(tavern.InboxOf(st, "late-b").Reply(ctx, answered, tavern.Message{Body: tavern.Text("!")}))
	work, delivery := daemonScan(st), daemonsOf(st, "delivery")
	if made, next := daemonDecides(t, work, now.Add(time.Hour-time.Second), delivery...); len(made) > 0 || !next.Equal(now.Add(time.Hour)) {
		t.Errorf("%v, %v", made, next)
	}
	made, _ := daemonDecides(t, daemonBlunt{work}, now.Add(time.Hour), delivery...)
	if diff := cmp.Diff([]string{"session/inbox=2Flate-a: overdue"}, daemonWhats(made)); diff != "" {
		t.Error(diff)
	}
	n := inboxRecords(t, st)
	if made, next := daemonDecides(t, daemonScan(st), now.Add(2*time.Hour), delivery...); len(made) > 0 || !next.IsZero() || inboxRecords(t, st) != n {
		t.Errorf("a second look: %v, next %v", made, next)
	}
	if mail := inboxAll(t, st, "late-a"); len(mail) != 2 || mail[1].Type != tavern.TypeMalfunction || mail[1].Malfunction != tavern.MalfunctionOverdue {
		t.Errorf("got %+v", mail)
	}
}

func daemonsRefused(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	for _, id := range []string{"shut-a", "shut-b"} {
		inboxAgent(t, st, id, "")
	}
	in := tavern.InboxOf(st, "shut-b")
	m := inboxSend(t, st, "shut-b", inboxNote("shut-a", "take it"))
	inboxSend(t, st, "shut-b", inboxNote("shut-a", "and this"))
	work, delivery := daemonScan(st), daemonsOf(st, "delivery")
	for n := 1; n <= tavern.MaxRefusals+2; n++ {
		need(in.Refused(ctx, m.Offset, "not now"))
		made, _ := daemonDecides(t, work, need(st.LogTime(ctx)), delivery...)
		if told := n == tavern.MaxRefusals; told != (len(made) == 1) {
			t.Errorf("refusal %d: %v", n, made)
		}
	}
	must(t, in.Seen(ctx, m.Offset))
	if made, _ := daemonDecides(t, daemonScan(st), need(st.LogTime(ctx)).Add(time.Hour), delivery...); len(made) > 0 {
		t.Errorf("decisions about a seen message: %v", made)
	}
	if mail := inboxAll(t, st, "shut-a"); len(mail) != 1 || mail[0].Malfunction != tavern.MalfunctionRefused {
		t.Errorf("got %+v", mail)
	}
}

func daemonsGone(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	for _, id := range []string{"left-a", "left-b"} {
		inboxAgent(t, st, id, "")
	}
	must(t, tavern.InboxOf(st, "left-c").Open(ctx, "a program"))
	seen := inboxSend(t, st, "left-b", inboxNote("left-a", "seen"))
	must(t, tavern.InboxOf(st, "left-b").Seen(ctx, seen.Offset))
	ask := inboxNote("left-a", "answered")
	ask.Expects = "answer"
	need(tavern.InboxOf(st, "left-b").Reply(ctx, inboxSend(t, st, "left-b", ask), tavern.Message{Body: tavern.Text("!")}))
	inboxSend(t, st, "left-b", inboxNote("left-a", "lies there"))
	inboxSend(t, st, "left-c", inboxNote("left-a", "here too"))
	work, delivery, now := daemonScan(st), daemonsOf(st, "delivery"), need(st.LogTime(ctx))
	if made, _ := daemonDecides(t, work, now.Add(1000*time.Hour), delivery...); len(made) > 0 {
		t.Errorf("decisions about living agents: %v", made)
	}
	last := need(st.Log.Last(ctx, st.Session("agent/left-b").Subject()))
	_, err := st.Session("agent/left-b").Append(ctx, log.At(last.Offset), &events.SessionUpdated{Set: events.Fields{
		{Name: "status", Value: tavern.Text("stopped:reaped")}, {Name: "finishedAt", Value: tavern.Text(string(events.TimestampOf(now)))}}})
	must(t, err)
	must(t, tavern.InboxOf(st, "left-c").Archive(ctx, "its program is gone"))
	if made, _ := daemonDecides(t, work, now.Add(time.Hour), delivery...); len(made) != 2 {
		t.Errorf("got %v", made)
	}
	n := inboxRecords(t, st)
	daemonDecides(t, daemonScan(st), now.Add(2*time.Hour), delivery...)
	if mail := inboxAll(t, st, "left-a"); len(mail) != 3 || mail[1].Malfunction != tavern.MalfunctionGone || mail[2].Malfunction != tavern.MalfunctionGone || inboxRecords(t, st) != n {
		t.Errorf("got %+v", mail)
	}
}

// All messages in the inbox of a receiver that is gone are handled in one look, and no inbox is read again for each
// message.
func TestDaemonsTellOfMany(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	reads := &recordsRead{Backend: mem}
	st := need(tally.Open(t.Context(), logtest.OpenOn(t, reads, log.Config{}), tally.Config{}))
	defer st.Close()
	ctx, n := t.Context(), 400
	inboxAgent(t, st, "many-a", "")
	must(t, tavern.InboxOf(st, "many-b").Open(ctx, "a program"))
	for range n {
		inboxSend(t, st, "many-b", inboxNote("many-a", "lies there"))
	}
	must(t, tavern.InboxOf(st, "many-b").Archive(ctx, "its program is gone"))
	work := daemonScan(st)
	_, err := work.Cursor(ctx)
	must(t, err)
	before := reads.n.Load()
	res, err := daemonsOf(st, "delivery")[0].Decide(ctx, work, need(st.LogTime(ctx)))
	must(t, errors.Join(err, res.Err))
	if len(res.Made) != n || res.Refused > 0 {
		t.Errorf("got %d decisions, %d without effect", len(res.Made), res.Refused)
	}
	if read := reads.n.Load() - before; read > int64(20*n) {
		t.Errorf("the daemons read %d records for notices about %d messages", read, n)
	}
}

// recordsRead counts the records that are read.
type recordsRead struct {
	log.Backend
	n atomic.Int64
}

func (b *recordsRead) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	cur, err := b.Backend.Scan(ctx, q)
	return &countedCursor{cur, &b.n}, err
}

type countedCursor struct {
	log.Cursor
	n *atomic.Int64
}

func (c *countedCursor) Next(ctx context.Context) (log.Message, error) {
	c.n.Add(1)
	return c.Cursor.Next(ctx)
}

func daemonsQueue(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	q := tavern.QueueOf(st, "work")
	must(t, q.Create(ctx, tavern.QueueSettings{Lease: time.Minute, MaxAttempts: 2}))
	need(q.Enqueue(ctx, tavern.Item{ID: "a", Body: tavern.Text("x")}))
	c := need(q.TryClaim(ctx, "w"))
	must(t, c.Fail(ctx, "no", true))
	need(q.TryClaim(ctx, "w"))
	work, dispatch, now := daemonScan(st), daemonsOf(st, "dispatch"), need(st.LogTime(ctx))
	if made, next := daemonDecides(t, work, now.Add(30*time.Second), dispatch...); len(made) > 0 || next.Sub(now) > time.Minute || next.Sub(now) < 50*time.Second {
		t.Errorf("%v, %v", made, next)
	}
	made, _ := daemonDecides(t, work, now.Add(2*time.Minute), dispatch...)
	if i := need(q.Get(ctx, "a")); len(made) != 1 || made[0].What != "dead" || i.State != tavern.ItemDead {
		t.Errorf("%v, %+v", made, i)
	}
	if made, next := daemonDecides(t, work, now.Add(time.Hour), dispatch...); len(made) > 0 || !next.IsZero() {
		t.Errorf("a second look: %v, next %v", made, next)
	}
}

func daemonsFlow(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	f := need(flowTemplates(t, st).Start(ctx, "release", tavern.FlowOptions{ID: "r1"}))
	c := need(f.Claim(ctx, "w", time.Minute))
	work, dispatch := daemonScan(st), daemonsOf(st, "dispatch")
	if made, next := daemonDecides(t, work, c.Until.Add(-time.Second), dispatch...); len(made) > 0 || !next.Equal(c.Until) {
		t.Errorf("%v, %v", made, next)
	}
	if made, _ := daemonDecides(t, work, c.Until, dispatch...); len(made) != 1 {
		t.Errorf("got %v", made)
	}
	flowIs(t, f, "build", 2, "")
	must(t, f.Move(ctx, "test"))
	child := tavern.FlowOf(st, need(f.State(ctx)).Child)
	must(t, child.Fail(ctx, "red"))
	// The flow that the state started failed, and no worker drives this one.
	if made, _ := daemonDecides(t, work, need(st.LogTime(ctx)).Add(time.Second), dispatch...); len(made) != 1 {
		t.Errorf("got %v", made)
	}
	flowIs(t, f, "triage", 4, "")
}

func daemonsJanitor(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	a, alive := agentAt(t, st, "reaped", []string{"working", "waiting"}), agentAt(t, st, "alive", []string{"working", "waiting"})
	flowTemplates2(t, st)
	for _, who := range []*tavern.Agent{a, alive} {
		need(tavern.OverlayOf(st, who.ID()).Write(ctx, "x", tally.Write{Data: []byte("x")}))
		need(st.Documents().Create(ctx, "doc", "of "+who.ID(), tally.Write{Data: []byte("x"), Owner: "agent/" + who.ID()}))
		need(tavern.WorkflowsOf(st).Start(ctx, "nested", tavern.FlowOptions{ID: who.ID(), Owner: "agent/" + who.ID()}))
	}
	must(t, a.Reap(ctx, "nobody answers"))
	at := need(a.Info(ctx)).FinishedAt
	work, janitor := daemonScan(st), daemonsOf(st, "janitor")
	if made, next := daemonDecides(t, work, at.Add(time.Hour-time.Millisecond), janitor...); len(made) > 0 || !next.Equal(at.Add(time.Hour)) {
		t.Errorf("in the window: %v, next %v", made, next)
	}
	daemonDecides(t, work, at.Add(time.Hour), janitor...)
	// The belongings of an orphaned flow are removed a window later.
	two := at.Add(2*time.Hour + time.Minute)
	daemonDecides(t, work, two, janitor...)
	if list := daemonOrphans(t, work); len(list) > 0 {
		t.Errorf("the orphans are %v", list)
	}
	if i := need(a.Info(ctx)); i.State != tavern.AgentArchived || len(i.Node) == 0 {
		t.Errorf("D-31: the agent is %+v", i)
	}
	daemonDecides(t, work, two.Add(24*time.Hour), janitor...)
	if _, err := a.Info(ctx); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("the purged agent: %v", err)
	}
	n := inboxRecords(t, st)
	if made, next := daemonDecides(t, daemonScan(st), two.AddDate(3, 0, 0), janitor...); len(made) > 0 || inboxRecords(t, st) != n || !next.IsZero() {
		t.Errorf("a second pass: %v, next %v", made, next)
	}
	for who, want := range map[*tavern.Agent]bool{a: false, alive: true} {
		_, err := tavern.OverlayOf(st, who.ID()).Read(ctx, "x")
		_, derr := st.Documents().Read(ctx, "doc", "of "+who.ID())
		s := need(tavern.FlowOf(st, who.ID()).State(ctx))
		c := need(tavern.FlowOf(st, s.Child).State(ctx))
		if (err == nil) != want || (derr == nil) != want || s.Over() == want || c.Over() == want {
			t.Errorf("%s: errors %v and %v, outcomes %q and %q", who.ID(), err, derr, s.Outcome(), c.Outcome())
		}
	}
}

// flowTemplates2 writes a template whose first state has its own flow.
func flowTemplates2(t *testing.T, st *tally.Store) {
	for id, text := range map[string]string{
		"inner":  `{"initial": "run", "states": {"run": {"to": ["ran"]}, "ran": {"end": true}}}`,
		"nested": `{"initial": "run", "states": {"run": {"to": ["ran"], "flow": "inner"}, "ran": {"end": true}}}`,
	} {
		_, err := tavern.WorkflowsOf(st).Create(t.Context(), id, []byte(text))
		must(t, err)
	}
}

func daemonsExpired(t *testing.T, st *tally.Store) {
	ctx, docs := t.Context(), st.Documents()
	until := need(st.LogTime(ctx)).Add(time.Hour).Truncate(time.Second)
	rev := need(docs.Create(ctx, "note", "soon over", tally.Write{Data: []byte("x"), ExpiresAt: until}))
	need(docs.Create(ctx, "note", "for ever", tally.Write{Data: []byte("x")}))
	other := need(st.In("other")).Documents()
	need(other.Create(ctx, "note", "soon over", tally.Write{Data: []byte("x"), ExpiresAt: until}))
	work, janitor := daemonScan(st), daemonsOf(st, "janitor")
	if made, next := daemonDecides(t, work, until.Add(-time.Second), janitor...); len(made) > 0 || !next.Equal(until) {
		t.Errorf("%v, %v", made, next)
	}
	made, _ := daemonDecides(t, work, until, janitor...)
	if diff := cmp.Diff([]string{"document/note/soon=20over: expired", "document/note/soon=20over: expired"}, daemonWhats(made)); diff != "" {
		t.Error(diff)
	}
	if list, _, err := other.List(ctx, projector.DocumentQuery{Deleted: true}); err != nil || len(list) != 1 || !list[0].Deleted || list[0].Reason != tavern.ReasonExpired {
		t.Errorf("the deleted documents of another namespace are %+v, error %v", list, err)
	}
	n := inboxRecords(t, st)
	daemonDecides(t, work, until.AddDate(1, 0, 0), janitor...)
	if inboxRecords(t, st) != n {
		t.Error("the document was deleted twice")
	}
	if old, err := docs.ReadAt(ctx, "note", "soon over", rev.Offset.String()); err != nil || string(old.Data) != "x" {
		t.Errorf("the deleted bytes: %v", err)
	}
}

// An unknown daemon's name is refused with the list of names. A daemon without windows removes nothing.
func TestDaemonsByName(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	_, err := tavern.Daemons(st, tavern.DaemonOptions{}, "delivery", "postman")
	if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || !strings.Contains(invalid.Reason, "delivery, dispatch, janitor") {
		t.Error(err)
	}
	var names []string
	for _, d := range daemonsOf(st) {
		names = append(names, d.Name())
	}
	if !slices.Equal(names, tavern.DaemonNames()) {
		t.Error(names)
	}
	a := agentAt(t, st, "dead", []string{"working", "waiting"})
	need(tavern.OverlayOf(st, a.ID()).Write(t.Context(), "x", tally.Write{Data: []byte("x")}))
	must(t, a.Reap(t.Context(), "so"))
	work := daemonScan(st)
	kept := need(tavern.Daemons(st, tavern.DaemonOptions{}))
	if made, next := daemonDecides(t, work, time.Now().AddDate(50, 0, 0), kept...); len(made) > 0 || !next.IsZero() {
		t.Errorf("%v, %v", made, next)
	}
	if list := daemonOrphans(t, work); len(list) != 1 || fmt.Sprint(list[0].Subject) != "document/overlay/"+a.ID()+"=2Fx" {
		t.Errorf("got %v", list)
	}
}
