package tavern_test

import (
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// If the append of a call is stored, the call returns its result, even if files of a tree do not show it. The same call
// again writes nothing.
func TestUnshown(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *tally.Store, *error){
		"message": messageUnshown, "item": itemUnshown, "agent": agentUnshown, "flow": flowUnshown, "decision": decisionUnshown, "orphan": orphanUnshown,
	} {
		t.Run("B-41 "+name, func(t *testing.T) {
			st, answer := storeWithTree(t)
			test(t, st, answer)
		})
	}
}

// writes runs a function and checks how many records it appends.
func writes(t *testing.T, st *tally.Store, want int, f func()) {
	t.Helper()
	before := flowRecords(t, st)
	f()
	if got := flowRecords(t, st) - before; got != want {
		t.Errorf("%d records were appended, want %d", got, want)
	}
}

func messageUnshown(t *testing.T, st *tally.Store, answer *error) {
	in := tavern.InboxOf(st, "ci")
	must(t, in.Open(t.Context(), ""))
	m := tavern.Message{From: tavern.User, Type: "note", Thread: "t", Key: "k", Body: tavern.Text("hello")}
	*answer = noRoom
	var sent tavern.Message
	writes(t, st, 1, func() {
		for range 2 {
			var err error
			sent, err = in.Send(t.Context(), m)
			unshown(t, "a message", err)
			if sent.ID == "" || sent.Offset == 0 || sent.Revision != sent.Offset {
				t.Errorf("Send returned %+v, want the stored message", sent)
			}
		}
	})
	writes(t, st, 1, func() {
		now, err := in.Amend(t.Context(), sent.ID, sent.Revision, tavern.Text("bye"))
		unshown(t, "an amendment", err)
		if now.ID != sent.ID || now.Revision <= sent.Revision || string(now.Body) != `"bye"` {
			t.Errorf("Amend returned %+v, want the amended message", now)
		}
	})
	writes(t, st, 1, func() {
		unshown(t, "a cursor", in.Seen(t.Context(), sent.Offset))
		must(t, in.Seen(t.Context(), sent.Offset))
	})
}

func itemUnshown(t *testing.T, st *tally.Store, answer *error) {
	q := tavern.QueueOf(st, "q")
	*answer = noRoom
	for _, id := range []string{"", "0", "0"} {
		it, err := q.Enqueue(t.Context(), tavern.Item{ID: id, Body: []byte("b")})
		unshown(t, "an item", err)
		if it.ID == "" || it.Offset == 0 {
			t.Fatalf("Enqueue returned %+v, want the stored item", it)
		}
	}
	writes(t, st, 2, func() {
		for range 2 {
			list, err := q.EnqueueMany(t.Context(), tavern.Item{ID: "1", Body: []byte("b")}, tavern.Item{ID: "2", Body: []byte("b")})
			unshown(t, "items", err)
			if len(list) != 2 {
				t.Fatalf("the call returned %+v, want the stored items", list)
			}
		}
	})
	if n, err := q.Counts(t.Context()); err != nil || n[tavern.ItemReady] != 4 {
		t.Errorf("got %v items, error %v; want 4 ready", n, err)
	}
	c, err := q.TryClaim(t.Context(), "w")
	unshown(t, "a claim", err)
	unshown(t, "a failure", c.Fail(t.Context(), "broken", false))
	writes(t, st, 1, func() { unshown(t, "an item queued again", q.Requeue(t.Context(), c.Item.ID)) })
	if s, err := q.Get(t.Context(), c.Item.ID); err != nil || s.State != tavern.ItemReady {
		t.Errorf("the retried item is %v, error %v", s.State, err)
	}
}

func agentUnshown(t *testing.T, st *tally.Store, answer *error) {
	*answer = noRoom
	a, err := tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{Name: "Ada", Assignment: "count"})
	unshown(t, "an agent", err)
	if a == nil {
		t.Fatal("the stored agent was not returned")
	}
	writes(t, st, 2, func() { // its session and its file
		unshown(t, "a state", a.SetState(t.Context(), tavern.AgentWorking, "begins"))
		must(t, a.SetState(t.Context(), tavern.AgentWorking, "begins"))
	})
	if i, err := a.Info(t.Context()); err != nil || i.State != tavern.AgentWorking {
		t.Errorf("the agent is %+v, error %v", i, err)
	}
}

func flowUnshown(t *testing.T, st *tally.Store, answer *error) {
	w := flowTemplates(t, st)
	*answer = noRoom
	var f *tavern.Flow
	writes(t, st, 3, func() { // of one append
		var err error
		f, err = w.Start(t.Context(), "suite", tavern.FlowOptions{ID: "f"})
		if unshown(t, "a flow", err); f == nil {
			t.Error("the stored flow was not returned")
		}
		f = tavern.FlowOf(st, "f")
		_, err = w.Start(t.Context(), "suite", tavern.FlowOptions{ID: "f"})
		if !events.IsStored(err) {
			t.Error(err)
		}
	})
	c, err := f.Claim(t.Context(), "w", 0)
	if unshown(t, "a claim", err); c == nil {
		t.Fatal("the stored claim was not returned")
	}
	for _, to := range []string{"run", "run", "ran"} { // each from the result of the one before
		writes(t, st, 1, func() { unshown(t, "a move", c.Move(t.Context(), to)) })
	}
	unshown(t, "an end", c.End(t.Context(), nil))
	flowIs(t, f, "ran", 4, "completed")
}

func decisionUnshown(t *testing.T, st *tally.Store, answer *error) {
	sub := events.Session(st.Namespace(), "s")
	e, err := events.New(st.Source(), sub, &events.SessionUpdated{Set: events.Fields{{Name: "status", Value: events.Raw(`"working"`)}}})
	must(t, err)
	e.ID = "once"
	d := tavern.Decision{Parts: []log.Part{{Subject: sub, Events: []events.Event{e}}}, Why: "due"}
	*answer = noRoom
	for _, want := range []bool{true, false} {
		made, err := d.Make(t.Context(), st)
		unshown(t, "a decision", err)
		if made != want {
			t.Errorf("made the decision: %v, want %v", made, want)
		}
	}
}

func orphanUnshown(t *testing.T, st *tally.Store, answer *error) {
	owner := need(tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{Name: "Ada"}))
	f := need(flowTemplates(t, st).Start(t.Context(), "suite", tavern.FlowOptions{ID: "f", Owner: "agent/" + owner.ID()}))
	must(t, owner.Dismiss(t.Context(), "over"))
	*answer = noRoom
	did, err := tavern.CleanOrphan(t.Context(), st, f.Subject())
	if unshown(t, "an orphan", err); did == "" {
		t.Error("the call did not return its decision about the orphan")
	}
	flowIs(t, f, "run", 1, tavern.OutcomeOrphaned)
	if did, err := tavern.CleanOrphan(t.Context(), st, f.Subject()); did != "" || err != nil {
		t.Errorf("a second call returned %q, error %v", did, err)
	}
}
