package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// A10, D-39: a process uses every part of a store, is killed between any two calls, and all files that the log can
// restore are deleted. The next process finds the same lists, leases, cursors and states, and each lease ends at the
// time that its call returned.
func TestRestart(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // the members are not built with it
	besideOthers(t)
	lives, most := 5, 12
	switch {
	case testkit.Soak():
		lives, most = 300, 4
	case !testkit.Full():
		lives = 3
	}
	var began, now map[string]string
	did := make(map[string]int)
	life := 0
	dir := filepath.Join(t.TempDir(), "store")
	r := newTroupe(t, dir, func(w word) {
		switch w.What {
		case "began":
			began, now = w.State, nil
			life = w.N
		case "did":
			did[w.ID]++
		case "now":
			now = w.State
		}
	})
	random := testkit.Random(t)
	var was map[string]string
	for n := range lives {
		m := member{Role: "restarted", Name: fmt.Sprint("life ", n), Seed: random.Uint64(), Count: 1 + random.IntN(most), Agents: []int{n}}
		if n == 0 {
			m.Count = 0 // its first calls are enough
		}
		r.start(m)
		r.until(func() bool { return life == n && now != nil })
		if diff := cmp.Diff(was, began); n > 0 && diff != "" {
			t.Fatalf("life %d does not begin in the state of the kill (-want +got):\n%s", n, diff)
		}
		was, now, life = now, nil, -1
		r.kill(m.Name)
		for _, name := range []string{"views.db*", "search.db*", "work.db*", "snapshots"} {
			for _, path := range need(filepath.Glob(filepath.Join(dir, name))) {
				must(t, os.RemoveAll(path))
			}
		}
	}
	if len(did) < len(restartCalls)*2/3 && lives > 20 || len(was) < 5 {
		t.Errorf("the calls %v left only %d facts", did, len(was))
	}
	t.Logf("%d lives; calls: %v; %d things are known", lives, did, len(was))
}

// restartTeam makes calls, reports the state, and waits to be killed.
func restartTeam(ctx context.Context, m member) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: m.Store, Backend: "local", Own: true})
	if err != nil {
		return err
	}
	life := m.Agents[0]
	if life == 0 {
		err = restartBegin(ctx, st)
	}
	if err != nil {
		return err
	}
	state, err := restartState(ctx, st)
	if err != nil {
		return err
	}
	speak(word{What: "began", N: life, State: state})
	random, promised := rand.New(rand.NewPCG(m.Seed, 1)), make(map[string]time.Time)
	var calls []string
	if life == 0 { // from then on each kind of lease, cursor and state exists
		calls = []string{"enqueue", "enqueue", "claim", "renew", "agent lease", "start", "drive", "write", "lock", "send", "refused", "send", "seen", "overlay", "propose", "merge", "personal"}
	}
	for range m.Count {
		calls = append(calls, slices.Sorted(maps.Keys(restartCalls))[random.IntN(len(restartCalls))])
	}
	for n, name := range calls {
		if err := restartCalls[name](ctx, st, restartDraw{random, fmt.Sprint(life, "-", n), promised}); err == nil {
			speak(word{What: "did", ID: name})
		} else if isAway(err) {
			return err
		}
	}
	if state, err = restartState(ctx, st); err != nil {
		return err
	}
	for what, until := range promised { // as the call returned, whatever a list has now
		if _, is := state[what]; is {
			state[what] = restartTime(until)
		}
	}
	speak(word{What: "now", State: state})
	<-ctx.Done()
	return nil
}

// restartLease is so long that no lease ends meanwhile.
const restartLease = 10 * time.Hour

const restartAgents = 3

func restartBegin(ctx context.Context, st *tally.Store) error {
	err := tavern.QueueOf(st, "q").Create(ctx, tavern.QueueSettings{Lease: restartLease, MaxAttempts: 2})
	if err == nil {
		err = tavern.ChangesetsOf(st, "merge").Create(ctx, tavern.QueueSettings{Lease: restartLease})
	}
	for id, text := range map[string]string{
		"inner":  `{"initial": "run", "states": {"run": {"to": ["ran"]}, "ran": {"end": true}}}`,
		"nested": `{"initial": "run", "states": {"run": {"to": ["ran"], "flow": "inner"}, "ran": {"end": true}}}`,
	} {
		if err == nil {
			_, err = tavern.WorkflowsOf(st).Create(ctx, id, []byte(text))
		}
	}
	for i := range restartAgents {
		if err == nil {
			_, err = tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: daemonAgent(i), Name: fmt.Sprint("agent ", i)})
		}
	}
	return err
}

func restartTime(at time.Time) string {
	return at.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
}

// restartDraw is the input of a call.
type restartDraw struct {
	*rand.Rand
	name     string               // a new one
	promised map[string]time.Time // ends of leases that calls returned
}

func (d restartDraw) agent() string { return daemonAgent(d.IntN(restartAgents)) }

// held returns a claim on an item that a worker holds.
func (d restartDraw) held(ctx context.Context, q *tavern.Queue) (*tavern.Claim, error) {
	list, _, err := q.List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemClaimed}})
	if err == nil && len(list) == 0 {
		err = errors.New("nobody has any")
	}
	if err != nil {
		return nil, err
	}
	i := list[d.IntN(len(list))]
	return q.Resume(ctx, i.ID, i.Fence)
}

func (d restartDraw) claimed(c *tavern.Claim, err error) error {
	if err == nil {
		d.promised["lease of item "+c.Item.ID] = c.Until
	}
	return err
}

func (d restartDraw) unclaimed(c *tavern.Claim, err error, end func() error) error {
	if err != nil {
		return err
	}
	delete(d.promised, "lease of item "+c.Item.ID)
	return end()
}

// restartCalls are the calls of a life. Refused calls are skipped.
var restartCalls = map[string]func(context.Context, *tally.Store, restartDraw) error{
	"enqueue": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		_, err := tavern.QueueOf(st, "q").Enqueue(ctx, tavern.Item{ID: d.name, Body: []byte(d.name), Priority: d.IntN(3)})
		return err
	},
	"claim": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		return d.claimed(tavern.QueueOf(st, "q").TryClaim(ctx, "w"))
	},
	"renew": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		c, err := d.held(ctx, tavern.QueueOf(st, "q"))
		if err == nil {
			d.promised["lease of item "+c.Item.ID], err = c.Renew(ctx)
		}
		return err
	},
	"finish": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		c, err := d.held(ctx, tavern.QueueOf(st, "q"))
		return d.unclaimed(c, err, func() error { return c.Finish(ctx, []byte(d.name)) })
	},
	"fail": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		c, err := d.held(ctx, tavern.QueueOf(st, "q"))
		return d.unclaimed(c, err, func() error { return c.Fail(ctx, d.name, true) })
	},
	"release": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		c, err := d.held(ctx, tavern.QueueOf(st, "q"))
		return d.unclaimed(c, err, func() error { return c.Release(ctx) })
	},
	"send": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		m := inboxNote(d.agent(), d.name)
		if d.IntN(2) == 0 {
			m.Expects, m.Deadline = "answer", time.Now().Add(restartLease).Truncate(time.Millisecond)
		}
		_, err := tavern.InboxOf(st, d.agent()).Send(ctx, m)
		return err
	},
	"seen": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		in := tavern.InboxOf(st, d.agent())
		cursor, err := in.Cursor(ctx)
		if err != nil {
			return err
		}
		list, _, err := in.List(ctx, tavern.Page{After: cursor, Limit: 1})
		if err == nil && len(list) > 0 {
			err = in.Seen(ctx, list[0].Offset)
		}
		return err
	},
	"refused": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		in := tavern.InboxOf(st, d.agent())
		cursor, err := in.Cursor(ctx)
		if err != nil {
			return err
		}
		list, _, err := in.List(ctx, tavern.Page{After: cursor, Limit: 1})
		if err == nil && len(list) > 0 {
			_, err = in.Refused(ctx, list[0].Offset, "no")
		}
		return err
	},
	"agent state": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		return tavern.AgentOf(st, d.agent()).SetState(ctx, []string{"working", "waiting", "idle", "done"}[d.IntN(4)], "so")
	},
	"agent lease": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		id := d.agent()
		l, err := tavern.AgentOf(st, id).Lease(ctx, "w", restartLease)
		if err == nil {
			d.promised["lease of agent "+id] = l.Until
		}
		return err
	},
	"commit": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		_, err := tavern.AgentOf(st, d.agent()).Commit(ctx, "it "+d.name, "true")
		return err
	},
	"start": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		_, err := tavern.WorkflowsOf(st).Start(ctx, []string{"inner", "nested"}[d.IntN(2)], tavern.FlowOptions{ID: d.name, Owner: "agent/" + d.agent()})
		return err
	},
	"drive": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		var open []string
		for info, err := range st.Subjects(ctx, events.KindSession) {
			if err != nil {
				return err
			}
			if id, is := strings.CutPrefix(info.Subject.ID, "flow/"); is {
				open = append(open, id)
			}
		}
		if len(open) == 0 {
			return errors.New("there is no flow")
		}
		f := tavern.FlowOf(st, open[d.IntN(len(open))])
		c, err := f.Claim(ctx, "w", restartLease)
		if err == nil {
			d.promised["lease of flow "+f.ID()] = c.Until
			if d.IntN(2) == 0 {
				delete(d.promised, "lease of flow "+f.ID())
				err = c.Move(ctx, "ran")
			}
		}
		return err
	},
	"write": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		_, err := st.Documents().Save(ctx, "doc", fmt.Sprint(d.IntN(4)), tally.Write{Data: []byte(d.name), Owner: d.agent()})
		return err
	},
	"lock": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		id := fmt.Sprint(d.IntN(4))
		l, err := st.Documents().Lease(ctx, "doc", id, "w", restartLease)
		if err == nil {
			d.promised["lease of doc "+id] = l.Until
		}
		return err
	},
	"overlay": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		_, err := tavern.OverlayOf(st, d.agent()).Write(ctx, fmt.Sprint(d.IntN(4)), tally.Write{Data: []byte(d.name)})
		return err
	},
	"propose": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		id := d.agent()
		rev, err := tavern.OverlayOf(st, id).Write(ctx, d.name, tally.Write{Data: []byte(d.name)})
		if err == nil {
			c := tavern.Change{Document: events.Document("", "doc", d.name), Overlay: events.Document("", "overlay", id+"/"+d.name), Revision: rev.Offset}
			_, err = tavern.ChangesetsOf(st, "merge").Propose(ctx, tavern.Changeset{ID: d.name, Owner: id, Changes: []tavern.Change{c}})
		}
		return err
	},
	"merge": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		m, err := tavern.ChangesetsOf(st, "merge").TryClaim(ctx, "w")
		if err == nil && d.IntN(3) > 0 {
			err = m.Apply(ctx)
		}
		return err
	},
	"personal": func(ctx context.Context, st *tally.Store, d restartDraw) error {
		return tavern.PersonalOf(st).SetAgentSession(ctx, d.agent(), d.name)
	},
}

// restartState returns everything that can be read, by lists and by handles without caches.
func restartState(ctx context.Context, st *tally.Store) (map[string]string, error) {
	s := make(map[string]string)
	for _, part := range []func(context.Context, *tally.Store, map[string]string) error{restartQueues, restartAgentsOf, restartFlows, restartDocuments, restartView} {
		if err := part(ctx, st, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func restartQueues(ctx context.Context, st *tally.Store, s map[string]string) error {
	all := []tavern.ItemState{tavern.ItemReady, tavern.ItemClaimed, tavern.ItemWaiting, tavern.ItemDead, tavern.ItemDone}
	for _, id := range []string{"q", "merge"} {
		list, _, err := tavern.QueueOf(st, id).List(ctx, tavern.ListQuery{States: all})
		if err != nil {
			return err
		}
		for n, i := range list {
			s[fmt.Sprintf("item %s %03d", id, n)] = fmt.Sprint(i.ID, " ", i.State, " ", i.Attempts, i.Worker, i.Fence, i.Offset, i.Outcome, i.Error, string(i.Body))
			if i.State == tavern.ItemClaimed {
				s["lease of item "+i.ID] = restartTime(i.Until)
			}
		}
	}
	return nil
}

func restartAgentsOf(ctx context.Context, st *tally.Store, s map[string]string) error {
	for i, err := range tavern.Agents(ctx, st, tavern.AgentFilter{}) {
		if err != nil {
			return err
		}
		s["agent "+i.ID] = fmt.Sprint(i.State, i.StateReason, i.Commitments, i.Lease.Holder, i.Revision, string(i.Node))
		if i.Lease.Holder != "" {
			s["lease of agent "+i.ID] = restartTime(i.Lease.Until)
		}
		in := tavern.InboxOf(st, i.ID)
		cursor, err1 := in.Cursor(ctx)
		unread, err2 := in.Unread(ctx)
		hand, err3 := in.HandOver(ctx)
		list, _, err4 := in.List(ctx, tavern.Page{})
		session, err5 := tavern.PersonalOf(st).AgentSession(ctx, i.ID)
		if errors.Is(err5, tally.ErrNotFound) {
			err5 = nil
		}
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return err
		}
		s["inbox "+i.ID] = fmt.Sprint(cursor, unread, hand, session)
		for n, m := range list {
			s[fmt.Sprintf("message %s %03d", i.ID, n)] = fmt.Sprint(m.ID, m.From, m.Offset, m.Expects, restartTime(m.Deadline), string(m.Body))
		}
	}
	return nil
}

func restartFlows(ctx context.Context, st *tally.Store, s map[string]string) error {
	for info, err := range st.Subjects(ctx, events.KindSession) {
		if err != nil {
			return err
		}
		id, is := strings.CutPrefix(info.Subject.ID, "flow/")
		if !is {
			continue
		}
		f, err := tavern.FlowOf(st, id).State(ctx)
		if err != nil {
			return err
		}
		s["flow "+id] = fmt.Sprint(f.State, f.Step, f.Attempt, f.Entered, f.Child, f.Held, f.Run.Worker, f.Outcome(), f.Offset)
		if f.Held {
			s["lease of flow "+id] = restartTime(time.UnixMilli(f.Run.LeaseUntil))
		}
	}
	return nil
}

func restartDocuments(ctx context.Context, st *tally.Store, s map[string]string) error {
	list, _, err := st.Documents().List(ctx, projector.DocumentQuery{})
	if err != nil {
		return err
	}
	for _, d := range list {
		doc, err := st.Documents().Read(ctx, d.Subject.Kind, d.Subject.ID)
		if err != nil {
			return err
		}
		s[d.Subject.String()] = fmt.Sprint(d.Owner, doc.Revision.Offset, doc.Revision.Number, doc.Direct.SHA256)
		l, err := st.Documents().Holder(ctx, d.Subject.Kind, d.Subject.ID)
		if err != nil {
			return err
		}
		if l.Holder != "" {
			s["lease of doc "+d.Subject.ID] = restartTime(l.Until)
		}
	}
	return nil
}

// restartView compares the view, which is rebuilt if it was deleted, with a scan of the log.
func restartView(ctx context.Context, st *tally.Store, s map[string]string) error {
	head, err := st.Log.Durable(ctx)
	if err == nil {
		err = st.Wait(ctx, "work", head)
	}
	if err != nil {
		return err
	}
	view, err := catalog.OpenWork(ctx, st.ViewsDir())
	if err != nil {
		return err
	}
	defer view.Close()
	scan := daemonScan(st)
	for _, what := range []string{projector.DueQueue, projector.DueOverdue, projector.DueGone, projector.DueHandover, projector.DueFlow, projector.DueAgentLease, projector.DueAgentEnded, projector.DueDocument, projector.DueOverlay, projector.DueOrphan} {
		list, err1 := view.Due(ctx, what, time.Now().AddDate(100, 0, 0), 1000)
		scanned, err2 := scan.Due(ctx, what, time.Now().AddDate(100, 0, 0), 1000)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if what == projector.DueQueue { // the view lists it once, for the first of its leases
			first := make(map[events.Subject]bool)
			scanned = slices.DeleteFunc(scanned, func(d projector.Due) bool { was := first[d.Subject]; first[d.Subject] = true; return was })
		}
		text, other := restartDues(list), restartDues(scanned)
		// For a refused message the view lists the time of the next attempt, and a scan the time of the refusal.
		if s["due "+what] = text; text != other && what != projector.DueHandover {
			s["due "+what] += ", and a scan says " + other
			return fmt.Errorf("the due entries of %s: %s", what, s["due "+what])
		}
	}
	return nil
}

func restartDues(list []projector.Due) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, d.Subject.String()+" "+restartTime(d.At))
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), "; ")
}
