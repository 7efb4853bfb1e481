package tavern_test

import (
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
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/tavern"
)

// A9, D-30, D-38, D-43, D-64: random lives of agents, of the documents that they write, and of the flows and changesets
// that they start, while two janitors run and the machine's clock is sometimes a year ahead and sometimes a day behind.
// Nothing of a living agent is removed, the clock alone removes nothing, two windows later no orphan is left, and a
// second pass appends nothing.
func TestJanitorLives(t *testing.T) {
	agents, steps, rounds := 16, 160, 2
	if testkit.Soak() {
		agents, steps, rounds = 200, 4000, 10
	}
	w := &livesWorld{daemonWorld: newDaemonWorld(t), random: testkit.Random(t), owners: make(map[string]string), dead: make(map[string]bool)}
	defer w.st.Close()
	for i := range agents {
		id := fmt.Sprintf("%08d-0000-467f-a0e6-6c1b1b1f1b1f", i)
		need(tavern.NewAgent(t.Context(), w.st, tavern.NewAgentOptions{ID: id, Name: fmt.Sprint("agent ", i)}))
		w.agents = append(w.agents, id)
	}
	for range rounds {
		for range steps / rounds {
			w.live(t)
		}
		w.wrongClock(t)
		w.later(t, time.Duration(w.random.IntN(90))*time.Minute)
		w.janitors(t)
		w.checkLiving(t)
	}
	w.endOneWithBelongings(t)
	for range 4 { // windows of ended agents, of their belongings, and of the belongings of those
		w.later(t, time.Hour+time.Minute)
		w.janitors(t)
	}
	w.later(t, 25*time.Hour)
	w.janitors(t)
	w.checkLiving(t)
	if list := daemonOrphans(t, daemonScan(w.st)); len(list) > 0 {
		t.Errorf("the orphans are %v", list)
	}
	n := inboxRecords(t, w.st)
	if w.janitors(t); inboxRecords(t, w.st) != n {
		t.Error("a second pass appended records")
	}
	left, gone := 0, 0
	for what, owner := range w.owners {
		if there := w.isThere(t, what); there != !w.isDead(owner) {
			t.Errorf("%s of %s: the owner has ended %v, the object exists %v", what, owner, w.isDead(owner), there)
		} else if there {
			left++
		} else {
			gone++
		}
	}
	if left == 0 || gone == 0 {
		t.Errorf("%d objects are left and %d are removed, want some of both", left, gone)
	}
	t.Logf("%d agents, %d of them dead; of what they had %d is there and %d is gone; %d records", len(w.agents), len(w.dead), left, gone, n)
}

// livesWorld is a world of agents.
type livesWorld struct {
	*daemonWorld
	random *rand.Rand
	agents []string
	owners map[string]string // object -> the agent or flow that owns it
	dead   map[string]bool
	n      int
}

func (w *livesWorld) isDead(owner string) bool {
	owner = strings.TrimPrefix(owner, "agent/")
	if of, is := w.owners[owner]; is { // a flow, which ends when its owner is gone
		return w.isDead(of)
	}
	return w.dead[owner]
}

// live lets a random event happen to an agent.
func (w *livesWorld) live(t *testing.T) {
	t.Helper()
	ctx, st, id := t.Context(), w.st, w.agents[w.random.IntN(len(w.agents))]
	if w.dead[id] {
		return
	}
	w.n++
	name := fmt.Sprint(w.n)
	owner := []string{id, "agent/" + id}[w.random.IntN(2)]
	switch w.random.IntN(8) {
	case 0, 1:
		need(st.Documents().Save(ctx, "doc", name, tally.Write{Data: []byte("x"), Owner: owner}))
		w.owners["document/doc/"+name] = owner
	case 2:
		need(tavern.OverlayOf(st, id).Write(ctx, name, tally.Write{Data: []byte("x")}))
		w.owners["document/overlay/"+id+"/"+name] = id
	case 3:
		need(tavern.WorkflowsOf(st).Start(ctx, []string{"inner", "nested"}[w.random.IntN(2)], tavern.FlowOptions{ID: name, Owner: "agent/" + id}))
		w.owners["flow/"+name] = "agent/" + id
		need(st.Documents().Save(ctx, "doc", "of flow "+name, tally.Write{Data: []byte("x"), Owner: "flow/" + name}))
		w.owners["document/doc/of flow "+name] = "flow/" + name
	case 4:
		rev := need(tavern.OverlayOf(st, id).Write(ctx, "change "+name, tally.Write{Data: []byte("y")}))
		w.owners["document/overlay/"+id+"/change "+name] = id
		change := tavern.Change{Document: events.Document("", "doc", "change "+name), Overlay: events.Document("", "overlay", id+"/change "+name), Revision: rev.Offset}
		need(tavern.ChangesetsOf(st, "merge").Propose(ctx, tavern.Changeset{ID: name, Owner: owner, Changes: []tavern.Change{change}}))
		w.owners["changeset/"+name] = owner
	case 5:
		must(t, tavern.AgentOf(st, id).SetState(ctx, "working", "so"))
	default:
		if w.random.IntN(4) > 0 {
			return
		}
		w.end(t, id)
	}
}

// end ends an agent.
func (w *livesWorld) end(t *testing.T, id string) {
	t.Helper()
	a := tavern.AgentOf(w.st, id)
	err := a.Reap(t.Context(), "so")
	if _, atRest := errors.AsType[*tavern.TransitionError](err); atRest {
		must(t, a.SetState(t.Context(), "idle", "so"))
		err = a.Dismiss(t.Context(), "so")
	}
	must(t, err)
	w.dead[id] = true
}

// endOneWithBelongings ends an agent that owns something, unless the draw ended one.
func (w *livesWorld) endOneWithBelongings(t *testing.T) {
	t.Helper()
	for _, owner := range w.owners {
		if w.isDead(owner) {
			return
		}
	}
	for _, owner := range w.owners {
		if id := strings.TrimPrefix(owner, "agent/"); slices.Contains(w.agents, id) {
			w.end(t, id)
			return
		}
	}
}

// isThere reports whether an object is unchanged since its owner's last write.
func (w *livesWorld) isThere(t *testing.T, what string) bool {
	t.Helper()
	ctx := t.Context()
	kind, id, _ := strings.Cut(what, "/")
	switch kind {
	case "flow":
		return !need(tavern.FlowOf(w.st, id).State(ctx)).Over()
	case "changeset":
		s := need(tavern.ChangesetsOf(w.st, "merge").Queue().Get(ctx, id))
		return s.State == tavern.ItemReady
	}
	kind, id, _ = strings.Cut(id, "/")
	_, err := w.st.Documents().Read(ctx, kind, id)
	if err != nil && !errors.Is(err, tally.ErrNotFound) {
		t.Error(err)
	}
	return err == nil
}

func (w *livesWorld) checkLiving(t *testing.T) {
	t.Helper()
	for what, owner := range w.owners {
		if !w.isDead(owner) && !w.isThere(t, what) {
			t.Errorf("%s of the living owner %s is removed", what, owner)
		}
	}
	for _, id := range w.agents {
		if w.dead[id] {
			continue
		}
		if i := need(tavern.AgentOf(w.st, id).Info(t.Context())); i.Dead() || !i.ArchivedAt.IsZero() {
			t.Errorf("agent %s is %s, but was not stopped", id, i.State)
		}
	}
}

// later advances the log's time.
func (w *livesWorld) later(t *testing.T, d time.Duration) {
	w.pass(d)
	need(w.st.Session("elsewhere").AppendTurns(t.Context(), events.MainThread, []byte(`"later"`)))
}

// wrongClock runs janitors while the machine's clock is wrong and has dated no record yet. That changes nothing.
func (w *livesWorld) wrongClock(t *testing.T) {
	t.Helper()
	w.janitors(t) // all due work is done
	n := inboxRecords(t, w.st)
	for _, wrong := range []time.Duration{365 * 24 * time.Hour, -24 * time.Hour} {
		w.pass(wrong)
		w.janitors(t)
		w.pass(-wrong)
	}
	if now := inboxRecords(t, w.st); now != n {
		t.Errorf("the clock alone caused %d records", now-n)
	}
}

// janitors runs two sets of daemons at once, as two processes would, until nothing is due.
func (w *livesWorld) janitors(t *testing.T) {
	t.Helper()
	var both sync.WaitGroup
	for range 2 {
		list := append([]daemon.Daemon(nil), daemonsOf(w.st)...)
		both.Go(func() {
			if _, err := runner.Once(t.Context(), w.st, list, nil); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}
