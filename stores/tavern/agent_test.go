package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

func TestAgent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		t.Run("D-04 an agent node is created, read and updated", func(t *testing.T) {
			a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "Pot: one", Assignment: "Stir.", Parent: &events.Lineage{Session: "agent/p"}, Owner: "me",
				Commitments: []tavern.Commitment{{Description: "A", Assertion: "true"}}}))
			i := need(a.Info(ctx))
			if i.Name != "Pot: one" || i.Assignment != "Stir." || i.State != tavern.AgentIdle || i.Owner != "me" || i.Parent.Session != "agent/p" || len(i.Commitments) != 1 || i.Commitments[0].Status != "pending" {
				t.Errorf("got %+v", i)
			}
			if _, err := tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: strings.ToUpper(a.ID()), Name: "again"}); !errors.Is(err, tally.ErrExists) {
				t.Errorf("a second create: %v", err)
			}
			must(t, a.Save(ctx, i.Revision, []byte(strings.Replace(string(i.Node), "Stir.", "Do not.", 1))))
			conflict, ok := errors.AsType[*tally.DocumentConflictError](a.Save(ctx, i.Revision, i.Node))
			now := need(a.Info(ctx))
			if !ok || conflict.Have != now.Revision || len(conflict.SHA256) != 64 || now.Assignment != "Do not." {
				t.Errorf("got the error %v and the agent %+v", conflict, now)
			}
			if _, ok := errors.AsType[*tavern.NodeError](a.Save(ctx, now.Revision, []byte(agentFile))); !ok {
				t.Error("the file of another agent was saved")
			}
			missing := tavern.AgentOf(st, "00000000-0000-0000-0000-000000000000")
			_, err := missing.Info(ctx)
			for name, err := range map[string]error{"Info": err, "SetState": missing.SetState(ctx, tavern.AgentWorking, ""), "Save": missing.Save(ctx, 0, []byte(strings.Replace(string(i.Node), a.ID(), missing.ID(), 1))), "Remove": a.Remove(ctx, "x")} {
				if !errors.Is(err, tally.ErrNotFound) {
					t.Errorf("%s of a missing agent: %v", name, err)
				}
			}
		})
		t.Run("D-04 a document is created, read and updated", func(t *testing.T) {
			d := st.Documents()
			rev := need(d.Create(ctx, "doc", "specs/a", tally.Write{Data: []byte("1")}))
			if _, err := d.Create(ctx, "doc", "specs/a", tally.Write{}); !errors.Is(err, tally.ErrExists) {
				t.Error(err)
			}
			need(d.Update(ctx, "doc", "specs/a", rev.Offset, tally.Write{Data: []byte("2")}))
			if _, err := d.Update(ctx, "doc", "specs/a", rev.Offset, tally.Write{}); !errors.Is(err, log.ErrConflict) {
				t.Error(err)
			}
			if doc := need(d.Read(ctx, "doc", "specs/a")); string(doc.Data) != "2" {
				t.Errorf("got %q", doc.Data)
			}
			if _, err := d.Update(ctx, "doc", "b", rev.Offset, tally.Write{}); !errors.Is(err, tally.ErrNotFound) {
				t.Error(err)
			}
		})
		t.Run("D-12 a node's round trip", func(t *testing.T) {
			a := newAgent(t, st)
			before := need(a.Info(ctx))
			id := before.Commitments[0].ID
			must(t, a.Verify(ctx, id))
			must(t, a.Fail(ctx, id, "two\nlines"))
			must(t, a.SetState(ctx, tavern.AgentWorking, ""))
			i := need(tavern.AgentOf(st, agentID).Info(ctx))
			want := []tavern.Commitment{{ID: id, Description: "It boils", Assertion: "true", Status: "failed", Failure: "two\nlines"}}
			if diff := cmp.Diff(want, i.Commitments); diff != "" || i.State != "working" || i.ID != agentID || i.Name != "Kettle" || i.Assignment != "Boil." {
				t.Errorf("%+v %s", i, diff)
			}
			file := strings.NewReplacer("state: idle", "state: working", "⏳", "❌", "`true`\n", "`true`\n  - Failed: two\n    | lines\n").Replace(agentFile)
			if diff := cmp.Diff(file, string(i.Node)); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("D-16 commitments", func(t *testing.T) { agentCommitments(t, tavern.AgentOf(st, agentID)) })
		t.Run("D-13 what a node lacks", func(t *testing.T) {
			for _, field := range []string{"id", "title", "state"} {
				text := slices.DeleteFunc(strings.Split(agentFile, "\n"), func(l string) bool { return strings.HasPrefix(l, field+":") })
				_, err := tavern.NewAgent(ctx, st, tavern.NewAgentOptions{File: []byte(strings.Join(text, "\n"))})
				if e, ok := errors.AsType[*tavern.NodeError](err); !ok || e.Field != field {
					t.Errorf("without %s: %v", field, err)
				}
			}
			broken := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "Broken"}))
			need(st.Documents().Save(ctx, "agent", broken.ID(), tally.Write{Data: []byte("no node")}))
			must(t, broken.SetState(ctx, tavern.AgentWorking, ""))
			i := need(broken.Info(ctx))
			if _, ok := errors.AsType[*tavern.NodeError](i.NodeErr); !ok || i.State != "working" || string(i.Node) != "no node" {
				t.Errorf("got %+v", i)
			}
			_, err := broken.Commit(ctx, "A", "")
			if _, ok := errors.AsType[*tavern.NodeError](err); !ok {
				t.Errorf("commit in a broken node file: %v", err)
			}
			if _, ok := errors.AsType[*tavern.TransitionError](broken.SetState(ctx, tavern.AgentDone, "")); !ok {
				t.Error("an agent with a broken node file became done")
			}
		})
		t.Run("D-14 restored as it was", func(t *testing.T) {
			for state, original := range map[string]string{"working": "idle", "verifying": "idle", "error": "idle", "waiting": "waiting", "done": "done"} {
				a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: state}))
				must(t, a.SetState(ctx, tavern.AgentWorking, ""))
				must(t, a.SetState(ctx, state, ""))
				n := agentRecords(ctx, st)
				if i := need(a.Restore(ctx)); i.State != state {
					t.Errorf("%s is restored as %s", state, i.State)
				}
				if i := need(a.RestoreAsOriginal(ctx)); i.State != original || agentRecords(ctx, st) != n {
					t.Errorf("%s is restored as %s, as the original would", state, i.State)
				}
			}
		})
		t.Run("odd ids and names", func(t *testing.T) {
			for _, id := range []string{"", "..", "a/../b", "a\nb", "\u202e", "\xff", strings.Repeat("x", 513)} {
				if _, err := tavern.AgentOf(st, id).Info(ctx); err == nil {
					t.Errorf("Info accepted the id %q", id)
				}
				if _, err := tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: id, Name: "x"}); err == nil && id != "" {
					t.Errorf("the id %q was accepted", id)
				}
			}
			for _, name := range []string{"\xff\xed\xa0\x80", "\x00", "---", `"`, strings.Repeat("x", 1<<20)} {
				a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: name}))
				must(t, a.Dismiss(ctx, "odd"))
				if i := need(a.Info(ctx)); i.Name != name {
					t.Errorf("the name of %q is %q", name, i.Name)
				}
			}
		})
		t.Run("agents are listed", func(t *testing.T) {
			need(st.Session("agent/other").AppendTurns(ctx, "main", []byte(`1`)))
			names := []string{}
			for i, err := range tavern.Agents(ctx, st, tavern.AgentFilter{States: []string{"waiting", "done"}}) {
				names = append(names, need(i, err).Name)
			}
			if slices.Sort(names); !slices.Equal(names, []string{"done", "waiting"}) {
				t.Errorf("got %q", names)
			}
		})
	})
}

func agentCommitments(t *testing.T, a *tavern.Agent) {
	ctx := t.Context()
	look := func(passed, pending, verifying, failed bool) {
		t.Helper()
		i := need(a.Info(ctx))
		if i.AllPassed() != passed || i.HasPending() != pending || i.HasVerifying() != verifying || i.HasFailed() != failed {
			t.Errorf("got %+v", i.Commitments)
		}
	}
	old := need(a.Info(ctx)).Commitments[0].ID
	look(false, false, false, true)
	must(t, a.Remove(ctx, old))
	look(true, false, false, false)
	c := need(a.Commit(ctx, "B", "make b"))
	look(false, true, false, false)
	refused, ok := errors.AsType[*tavern.TransitionError](a.Pass(ctx, c.ID))
	if !ok || refused.From != "pending" || refused.To != "passed" || !slices.Equal(refused.Allowed, []string{"verifying"}) {
		t.Errorf("got %+v", refused)
	}
	must(t, a.Verify(ctx, c.ID))
	look(false, false, true, false)
	must(t, a.Pass(ctx, c.ID))
	must(t, a.Pass(ctx, c.ID)) // it has passed already
	look(true, false, false, false)
	must(t, a.Amend(ctx, c.ID, "B, but better", "make b"))
	look(false, true, false, false)
	must(t, a.Verify(ctx, c.ID))
	must(t, a.Fail(ctx, c.ID, "no"))
	must(t, a.Reset(ctx, c.ID))
	want := []tavern.Commitment{{ID: c.ID, Description: "B, but better", Assertion: "make b", Status: "pending"}}
	if diff := cmp.Diff(want, need(a.Info(ctx)).Commitments); diff != "" {
		t.Error(diff)
	}
	if _, err := a.Commit(ctx, "two\nlines", ""); err == nil {
		t.Error("a commitment with two lines was accepted")
	}
	must(t, a.Remove(ctx, c.ID))
}

// The table is the specification's, written out again.
func TestAgentStates(t *testing.T) {
	testkit.NotUnderRace(t)
	table := map[string]string{
		"idle": "working done error stopped:dismissed", "working": "waiting verifying idle done error", "waiting": "working idle error stopped:reaped stopped:dismissed stopped:failed",
		"verifying": "working done error", "done": "working archived", "error": "working archived",
		"stopped:reaped": "archived", "stopped:dismissed": "archived", "stopped:failed": "archived", "archived": "",
	}
	way := map[string][]string{"working": {"working"}, "waiting": {"working", "waiting"}, "verifying": {"working", "verifying"}, "done": {"done"}, "error": {"error"},
		"stopped:reaped": {"working", "waiting", "stopped:reaped"}, "stopped:dismissed": {"stopped:dismissed"}, "stopped:failed": {"working", "waiting", "stopped:failed"}, "archived": {"done", "archived"}}
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		t.Run("D-15 a transition that is not in the table is refused", func(t *testing.T) {
			for from, allowed := range table {
				may := strings.Fields(allowed)
				a := agentAt(t, st, from, way[from])
				n := agentRecords(ctx, st)
				for to := range table {
					if to == from || slices.Contains(may, to) {
						continue
					}
					e, ok := errors.AsType[*tavern.TransitionError](a.SetState(ctx, to, "so"))
					if !ok || e.From != from || e.To != to || !slices.Equal(e.Allowed, may) || agentRecords(ctx, st) != n {
						t.Errorf("from %s to %s: %+v", from, to, e)
					}
				}
				for _, to := range may {
					a := agentAt(t, st, from, way[from])
					must(t, a.SetState(ctx, to, "so"))
					if i := need(a.Info(ctx)); i.State != to || i.StateReason != "so" || !strings.Contains(string(i.Node), to) {
						t.Errorf("after the move from %s to %s the state is %s", from, to, i.State)
					}
				}
			}
		})
		t.Run("D-15 what is missing is said", func(t *testing.T) {
			a := agentAt(t, st, "done", way["done"])
			if e, ok := errors.AsType[*tavern.TransitionError](a.SetState(ctx, "working", "")); !ok || e.Reason == "" {
				t.Errorf("reopen without a reason: %v", e)
			}
			open := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "open", Commitments: []tavern.Commitment{{Description: "A"}}}))
			if e, ok := errors.AsType[*tavern.TransitionError](open.SetState(ctx, "done", "")); !ok || !strings.Contains(e.Reason, "1 of 1") {
				t.Errorf("done with an open commitment: %v", e)
			}
			if e, ok := errors.AsType[*tavern.TransitionError](open.ForceDone(ctx, "")); !ok || e.Reason == "" {
				t.Errorf("force without a reason: %v", e)
			}
			must(t, open.ForceDone(ctx, "enough"))
			if _, err := open.Commit(ctx, "B", ""); err == nil {
				t.Error("an agent that is done accepted a commitment")
			}
		})
		t.Run("a person's edit of the state is a change of state", func(t *testing.T) {
			a := agentAt(t, st, "idle", nil)
			i := need(a.Info(ctx))
			if _, ok := errors.AsType[*tavern.TransitionError](a.Save(ctx, i.Revision, []byte(strings.Replace(string(i.Node), "state: idle", "state: verifying", 1)))); !ok {
				t.Error("an edit moved an idle agent to verifying")
			}
			must(t, a.Save(ctx, i.Revision, []byte(strings.Replace(string(i.Node), "state: idle", "state: working", 1))))
			if i = need(a.Info(ctx)); i.State != "working" {
				t.Errorf("the state is %s", i.State)
			}
		})
		t.Run("a sound file takes the place of a broken one, whatever state it says", func(t *testing.T) {
			a := agentAt(t, st, "broken", nil)
			sound := need(a.Info(ctx)).Node
			need(st.Documents().Save(ctx, "agent", a.ID(), tally.Write{Data: []byte("no node")}))
			must(t, a.Save(ctx, need(a.Info(ctx)).Revision, []byte(strings.Replace(string(sound), "state: idle", "state: done", 1))))
			if i := need(a.Info(ctx)); i.State != "done" || i.NodeErr != nil {
				t.Errorf("the state is %s, the error of the node file %v", i.State, i.NodeErr)
			}
		})
		t.Run("a person's edit changes no commitment of an agent that is done, unless it is opened again", func(t *testing.T) {
			a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "done", Commitments: []tavern.Commitment{{Description: "A"}}}))
			must(t, a.ForceDone(ctx, "enough"))
			i := need(a.Info(ctx))
			other := strings.Replace(string(i.Node), "**A**", "**B**", 1)
			if _, ok := errors.AsType[*tavern.TransitionError](a.Save(ctx, i.Revision, []byte(other))); !ok {
				t.Error("an edit changed a commitment of an agent that is done")
			}
			must(t, a.Save(ctx, i.Revision, append(i.Node, "\nmine\n"...)))
			i = need(a.Info(ctx))
			must(t, a.Save(ctx, i.Revision, []byte(strings.Replace(other, "state: done", "state: working", 1))))
			if i = need(a.Info(ctx)); i.State != "working" || i.Commitments[0].Description != "B" {
				t.Errorf("the state is %s, the commitments are %+v", i.State, i.Commitments)
			}
		})
	})
}

// agentAt creates an agent and moves it to a state.
func agentAt(t *testing.T, st *tally.Store, name string, way []string) *tavern.Agent {
	t.Helper()
	a := need(tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{Name: name}))
	for _, state := range way {
		must(t, a.SetState(t.Context(), state, "on the way"))
	}
	return a
}

// A person edits the file while the agent's state changes: no change is lost, and a stale edit is refused.
func TestAgentEdited(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		a := newAgent(t, st)
		var both sync.WaitGroup
		both.Go(func() {
			for n := range 20 {
				must(t, a.SetState(ctx, []string{"working", "idle"}[n%2], ""))
			}
		})
		lines := 0
		both.Go(func() {
			for tries := 0; lines < 10 && tries < 1000; tries++ {
				doc := need(st.Documents().Read(ctx, "agent", agentID))
				_, err := st.Documents().Update(ctx, "agent", agentID, doc.Offset, tally.Write{Data: append(doc.Data, fmt.Sprintf("\nline %d", lines)...)})
				switch _, conflict := errors.AsType[*tally.DocumentConflictError](err); {
				case err == nil:
					lines++
				case !conflict:
					t.Errorf("got the error %v", err)
					return
				}
			}
		})
		both.Wait()
		i := need(a.Info(ctx))
		if i.State != "idle" || !strings.Contains(string(i.Node), "state: idle\n") || strings.Count(string(i.Node), "\nline ") != 10 || !strings.HasPrefix(string(i.Node), "---\n# mine\n") {
			t.Errorf("the state is %s, the node file %s", i.State, i.Node)
		}
	})
}

// An append without an acknowledgement is repeated, and stored once: in both subjects, or in neither.
func TestAgentFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx := t.Context()
		agree := func() {
			t.Helper()
			i, err := tavern.AgentOf(st, agentID).Info(ctx)
			if err != nil || !strings.Contains(string(i.Node), "state: "+i.State+"\n") {
				t.Fatalf("the session has %+v, error %v", i, err)
			}
		}
		var a *tavern.Agent
		call("NewAgent", 3, func() (err error) {
			a, err = tavern.NewAgent(ctx, st, tavern.NewAgentOptions{File: []byte(agentFile)})
			return err
		})
		agree()
		id := need(a.Info(ctx)).Commitments[0].ID
		for _, c := range []struct {
			name string
			n    int
			do   func() error
		}{
			{"SetState", 2, func() error { return a.SetState(ctx, "working", "") }},
			{"SetState, the same", 0, func() error { return a.SetState(ctx, "working", "") }},
			{"Commit", 2, func() error { _, err := a.Commit(ctx, "B", "b"); return err }},
			{"Verify", 2, func() error { return a.Verify(ctx, id) }},
			{"Pass", 2, func() error { return a.Pass(ctx, id) }},
			{"Amend", 2, func() error { return a.Amend(ctx, id, "C", "c") }},
			{"Remove", 2, func() error { return a.Remove(ctx, id) }},
			{"Lease", 1, func() error { _, err := a.Lease(ctx, "w", time.Minute); return err }},
			{"Release", 1, func() error { return a.Release(ctx, "w") }},
			{"Release again", 0, func() error { return a.Release(ctx, "w") }},
			{"SetState, waiting", 2, func() error { return a.SetState(ctx, "waiting", "") }},
			{"Reap", 2, func() error { return a.Reap(ctx, "nobody answers") }},
			{"Archive", 2, func() error { return a.Archive(ctx, "") }},
		} {
			call(c.name, c.n, c.do)
			if c.name != "Reap" && c.name != "Archive" {
				agree()
			}
		}
	})
}

// Wherever a change is cut off, the session and the node file agree.
func TestAgentCutOff(t *testing.T) {
	for n := range 4 { // so many publications reach the log before it fails
		left := 1 << 20
		st := storetest.Faulty(t, func() logtest.Fault {
			if left--; left < 0 {
				return logtest.Dropped
			}
			return logtest.None
		})
		a := newAgent(t, st)
		left = n
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		err := a.SetState(short, tavern.AgentWorking, "")
		cancel()
		left = 1 << 20
		i := need(a.Info(t.Context()))
		if !strings.Contains(string(i.Node), "state: "+i.State+"\n") || err == nil && i.State != tavern.AgentWorking {
			t.Errorf("after %d publications the session has the state %s, the file %q, error %v", n, i.State, i.Node, err)
		}
	}
}
