package tally_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// mustBe checks the turns of thread main at a position.
func mustBe(t *testing.T, s *tally.Session, position string, want ...string) *projector.Session {
	t.Helper()
	state, err := s.Load(t.Context(), position)
	if err != nil {
		t.Fatalf("%s at %q: %v", s.ID(), position, err)
	}
	var got []string
	for _, turn := range state.Threads.Turns(events.MainThread) {
		text, err := rawjson.String(turn.Raw)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s at %q: got %q, want %q", s.ID(), position, got, want)
	}
	return state
}

func mustMove(t *testing.T, s *tally.Session, m *tally.Move, err error) log.Ack {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ack, err := s.Move(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

func mustRead(t *testing.T, turns projector.Turns) (list []projector.TurnAt) {
	t.Helper()
	for turn, err := range turns.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, turn)
	}
	return list
}

func TestMoves(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	if _, err := s.PlanUndo(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("undo of a missing session: got %v, want ErrNotFound", err)
	}
	mustTurns(t, s, "a", "b")
	mustTurns(t, s, "c")
	if _, err := s.PlanUndo(t.Context()); !errors.Is(err, projector.ErrNothingToUndo) {
		t.Errorf("undo without a rewind: got %v, want ErrNothingToUndo", err)
	}
	if _, err := s.PlanRedo(t.Context()); !errors.Is(err, projector.ErrNothingToRedo) {
		t.Errorf("redo without an undo: got %v, want ErrNothingToRedo", err)
	}
	if _, err := s.PlanRewind(t.Context(), "start", ""); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("rewind to start: got %v, want ErrNotFound", err)
	}
	m, err := s.PlanRewind(t.Context(), "#1", "too far")
	if err != nil || m.Event.To != 1 || m.Event.Reason != "too far" || m.Basis != 2 || m.Leaves.Count != 1 || mustRead(t, m.Leaves)[0].Number != 3 || m.Returns.Count != 0 {
		t.Fatalf("rewind: got plan %+v, %v, want turn 3 to leave", m, err)
	}
	mustBe(t, s, "", "a", "b", "c") // a plan changes nothing
	mustMove(t, s, m, nil)
	mustBe(t, s, "", "a", "b")
	m, err = s.PlanUndo(t.Context())
	if err != nil || m.Leaves.Count != 0 || m.Returns.Count != 1 || m.Event.Undoes != 3 {
		t.Fatalf("undo: got plan %+v, %v, want a turn to return", m, err)
	}
	mustMove(t, s, m, nil)
	mustBe(t, s, "", "a", "b", "c")
	m, err = s.PlanRedo(t.Context())
	mustMove(t, s, m, err)
	mustBe(t, s, "", "a", "b")
}

// A rewind to a position with the same threads as now writes nothing, so undo and redo apply to the rewind before it.
// Threads with other pins are not the same.
func TestRewindToWhereOneIs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s := st.Session("s")
		stays := func(position string) {
			t.Helper()
			before, err := st.Log.Head(t.Context())
			must(t, err)
			m, err := s.PlanRewind(t.Context(), position, "no reason")
			if err != nil || !m.There || m.Leaves.Count+m.Returns.Count > 0 {
				t.Fatalf("%s: got plan %+v, %v, want There", position, m, err)
			}
			if ack, err := s.Move(t.Context(), m); err != nil || ack != (log.Ack{}) {
				t.Errorf("%s: got ack %+v, %v, want an empty one", position, ack, err)
			}
			if head, err := st.Log.Head(t.Context()); err != nil || head != before {
				t.Errorf("%s: head was %v and is %v, %v, want no write", position, before, head, err)
			}
		}
		moves := func(position string) {
			t.Helper()
			m, err := s.PlanRewind(t.Context(), position, "")
			must(t, err)
			if m.There {
				t.Errorf("%s: got There, want a move", position)
			}
			mustMove(t, s, m, nil)
		}
		mustTurns(t, s, "a") // @1
		mustTurns(t, s, "b") // @2
		for _, position := range []string{"", "#2", "~0", "@2", "@99"} {
			stays(position)
		}
		_, err := s.Append(t.Context(), log.Any, cost) // @3
		must(t, err)
		stays("#2") // a cost does not change the threads
		moves("#1") // @4
		for _, position := range []string{"#1", "~0", "@1", "head"} {
			stays(position)
		}
		mustBe(t, s, "", "a")
		m, err := s.PlanUndo(t.Context())
		mustMove(t, s, m, err) // undoes the rewind, not the move that wrote nothing
		mustBe(t, s, "", "a", "b")
		stays("@2")
		m, err = s.PlanRedo(t.Context())
		mustMove(t, s, m, err)
		mustBe(t, s, "", "a")
		mustTurns(t, s, "b") // the same turns at another position
		moves("@3")
		mustAppend(t, st, s, log.At(8), mustEvent(t, s, &events.ThreadPinned{Thread: "main", Pins: map[int]bool{0: true}}))
		moves("@3")
		stays("@3")
		own := mustAppend(t, st, s, log.Any, events.Event{Source: "urn:test", Type: "com.acme.vote.v1"}).Last
		moves("@3") // the event may move with the threads
		stays("@3")
		moves(own.String())
		stays(own.String())
	})
}

// After any history, There is set exactly if a rewind would leave the turns as they are, and only written moves are
// undone.
func TestMovesFollowAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
		must(t, err)
		st, err := tally.Open(t.Context(), l, tally.Config{Source: "urn:test"})
		must(t, err)
		defer st.Close()
		s := st.Session("s")
		states := []string{""} // the turns after each record, by offset
		var undone []string    // what each undo brings back, the next one last
		now := func() string { return states[len(states)-1] }
		move := func(m *tally.Move, want string) {
			_, err := s.Move(t.Context(), m)
			must(t, err)
			if !m.There {
				states = append(states, want)
			}
		}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			switch op := rapid.SampledFrom([]string{"turn", "turn", "cost", "rewind", "rewind", "undo"}).Draw(rt, "op"); {
			case op == "turn" || len(states) == 1:
				mustTurns(t, s, fmt.Sprint(len(states)))
				states = append(states, now()+fmt.Sprint(" ", len(states)))
			case op == "cost":
				_, err := s.Append(t.Context(), log.Any, cost)
				must(t, err)
				states = append(states, now())
			case op == "rewind":
				to := rapid.IntRange(1, len(states)-1).Draw(rt, "to")
				m, err := s.PlanRewind(t.Context(), fmt.Sprintf("@%d", to), "")
				must(t, err)
				if m.There != (states[to] == now()) {
					rt.Fatalf("rewind to @%d, with turns%s, from turns%s: got plan %+v", to, states[to], now(), m)
				}
				if !m.There {
					undone = append(undone, now())
				}
				move(m, states[to])
			case len(undone) == 0:
				if _, err := s.PlanUndo(t.Context()); !errors.Is(err, projector.ErrNothingToUndo) {
					rt.Fatalf("undo without a rewind: got %v, want ErrNothingToUndo", err)
				}
			default:
				m, err := s.PlanUndo(t.Context())
				must(t, err)
				move(m, undone[len(undone)-1])
				undone = undone[:len(undone)-1]
			}
			head, err := st.Log.Head(t.Context())
			must(t, err)
			state := mustBe(t, s, "", strings.Fields(now())...)
			if int(head) != len(states)-1 || state.Offset() != head {
				rt.Fatalf("head is %v, want @%d", head, len(states)-1)
			}
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// A stored rewind that moved no turn, as older programs wrote, is undone and redone like any other.
func TestOldRewindToWhereOneIs(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	mustTurns(t, s, "a")
	mustAppend(t, st, s, log.At(1), mustEvent(t, s, &events.SessionRewound{To: 1})) // @2
	for _, c := range []struct {
		plan   func(context.Context) (*tally.Move, error)
		undoes events.Offset
	}{{s.PlanUndo, 2}, {s.PlanRedo, 3}} {
		m, err := c.plan(t.Context())
		if err != nil || m.There || m.Event.Undoes != c.undoes {
			t.Fatalf("got plan %+v, %v, want to undo %v", m, err, c.undoes)
		}
		if ack := mustMove(t, s, m, nil); ack.Last != c.undoes+1 {
			t.Errorf("got ack %+v, want offset %v", ack, c.undoes+1)
		}
	}
	mustBe(t, s, "", "a")
}

// stay sets the handle's basis: appends after it are not stale, even if the handle had not read the session before. It
// is refused if the head moved meanwhile.
func TestStayIsAMove(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s, other := st.Session("s"), st.Session("s")
	mustTurns(t, s, "a")
	mustTurns(t, s, "b")
	m, err := other.PlanRewind(t.Context(), "#1", "")
	mustMove(t, other, m, err)
	m, err = s.PlanRewind(t.Context(), "#1", "")
	if err != nil || !m.There {
		t.Fatalf("got plan %+v, %v, want There", m, err)
	}
	mustMove(t, s, m, nil)
	if ack, err := s.AppendTurns(t.Context(), events.MainThread, []byte(`"c"`)); err != nil || ack.Stale {
		t.Errorf("append after the move: got %+v, %v, want not stale", ack, err)
	}
	m, err = s.PlanRewind(t.Context(), "", "")
	must(t, err)
	mustTurns(t, other, "d")
	if _, err := s.Move(t.Context(), m); !errors.Is(err, log.ErrConflict) {
		t.Errorf("a turn came after the plan: got %v, want ErrConflict", err)
	}
}

// A turn or a rewind after the plan is a conflict. Costs, progress and fields are not.
func TestMoveConflicts(t *testing.T) {
	run := events.RunRef{Kind: "panel", ID: "r"}
	for _, c := range []struct {
		between  events.Payload
		conflict bool
	}{
		{cost, false},
		{&events.RunProgressed{Run: run, Kind: "delta"}, false},
		{&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`1`)}, false},
		{&events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}}}, false},
		{&events.TurnAppended{Entries: []events.Entry{{Thread: "other", Turn: events.Raw(`1`)}}}, true},
		{&events.ThreadPinned{Thread: "main", Pins: map[int]bool{0: true}}, true},
		{&events.ThreadTruncated{Lengths: map[string]int{"main": 1}, Reason: "cut"}, true},
		{&events.ThreadReplaced{Threads: map[string]events.Replacement{}, Others: "drop", Reason: "clear"}, true},
		{&events.SessionRewound{To: 1}, true},
	} {
		t.Run(c.between.EventType(), func(t *testing.T) {
			st := storetest.Memory(t, tally.Config{})
			s := st.Session("s")
			mustTurns(t, s, "a")
			mustTurns(t, s, "b")
			m, err := s.PlanRewind(t.Context(), "@1", "")
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, st, s, log.At(2), mustEvent(t, s, c.between))
			_, err = s.Move(t.Context(), m)
			if errors.Is(err, log.ErrConflict) != c.conflict || !c.conflict && err != nil {
				t.Fatalf("move: got %v, want a conflict: %v", err, c.conflict)
			}
			if head, err := st.Log.Head(t.Context()); err != nil || (head == 3) != c.conflict {
				t.Errorf("head is %v, %v, want 3 after a conflict, else 4", head, err)
			}
		})
	}
}

// A turn whose producer had read records that were rewound meanwhile is kept, is not live, and its cost counts.
func TestLateAnswer(t *testing.T) {
	st := storetest.Memory(t, tally.Config{Snapshots: &snapshot.Mem{}})
	s := st.Session("s")
	mustTurns(t, s, "a")
	mustTurns(t, s, "question")
	seen := func(p events.Payload, at events.Offset) events.Event {
		return mustEvent(t, s, p).WithExtension(events.ExtBasis, at.Padded())
	}
	turn := func(text string) *events.TurnAppended {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(strconv.Quote(text))}}}
	}
	m, err := s.PlanRewind(t.Context(), "#1", "")
	mustMove(t, s, m, err) // @3
	answer := seen(turn("answer"), 2)
	answer.ID = "answer"
	if ack := mustAppend(t, st, s, log.Any, answer); !ack.Stale || ack.Duplicate || ack.First != 4 {
		t.Errorf("late answer: got %+v, want stale at 4", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, answer); !ack.Stale || !ack.Duplicate || ack.First != 4 {
		t.Errorf("repeated late answer: got %+v, want a stale duplicate at 4", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, seen(cost, 2)); !ack.Stale {
		t.Errorf("late cost: got %+v, want stale", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, seen(turn("in time"), 5)); ack.Stale {
		t.Errorf("turn with a basis after the rewind: got %+v, want not stale", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, seen(turn("of what was never gone"), 1)); ack.Stale {
		t.Errorf("turn with a basis that was not rewound: got %+v, want not stale", ack)
	}
	state := mustBe(t, s, "", "a", "in time", "of what was never gone")
	if stale := state.History.Stale(); !slices.Equal(stale, []events.Offset{4, 5}) {
		t.Errorf("stale records: got %v, want @4 and @5", stale)
	}
	if spent, branch := state.Ledger.Spent(), state.OnBranch(); spent.USD != "0.5" || branch.Events != 0 {
		t.Errorf("spent %+v, want 0.5; on this branch %+v, want nothing", spent, branch)
	}
	gone, err := st.Loader().Gone(t.Context(), state)
	if err != nil || len(gone) != 2 {
		t.Errorf("gone turns: got %v, %v, want 2", gone, err)
	}
}

func TestFork(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	if _, err := s.Create(t.Context(), events.SessionCreated{Kind: events.KindPanel, CreatedAt: "2026-01-01T00:00:00Z", Title: "t"}); err != nil {
		t.Fatal(err)
	}
	mustTurns(t, s, "a")
	fork, _, err := s.Fork(t.Context(), "", "fork")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Fork(t.Context(), "", "fork"); !errors.Is(err, tally.ErrExists) {
		t.Errorf("forked twice: got %v, want ErrExists", err)
	}
	mustTurns(t, fork, "b")
	mustTurns(t, s, "c")
	state := mustBe(t, fork, "", "a", "b")
	if l := state.Ledger; l.Kind != events.KindPanel || l.Text("title") != "t" || *l.Fork != (events.Fork{Session: "s", Offset: 2}) || l.Parent != nil {
		t.Errorf("got ledger %+v of the fork, want kind and title of its parent", l)
	}
	mustBe(t, s, "", "a", "c")
	for _, position := range []string{"start", "@2", "#1"} { // before its own first record
		if _, _, err := fork.Fork(t.Context(), position, "another"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("fork of a fork at inherited %s: got %v, want ErrNotFound", position, err)
		}
	}
	again, _, err := fork.Fork(t.Context(), "#2", "fork of fork")
	if err != nil {
		t.Fatal(err)
	}
	m, err := again.PlanRewind(t.Context(), "#1", "") // into what it inherited
	mustMove(t, again, m, err)
	mustBe(t, again, "", "a")
	m, err = again.PlanUndo(t.Context())
	mustMove(t, again, m, err)
	mustBe(t, again, "", "a", "b")
	if _, _, err := st.Session("nobody").Fork(t.Context(), "", "x"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("fork of a missing session: got %v, want ErrNotFound", err)
	}
}

// A fork without an id is named after the position's offset and its parent. Several forks at a position have different
// names, none of which begins like the parent's.
func TestForkNames(t *testing.T) {
	for parent, names := range map[string][]string{
		"travel":       {"fork-2-of-travel", "fork-2-2-of-travel", "fork-2-3-of-travel", "fork-3-of-travel"},
		"shop/desk/o1": {"shop/desk/fork-2-of-o1", "shop/desk/fork-2-2-of-o1", "shop/desk/fork-2-3-of-o1", "shop/desk/fork-3-of-o1"},
	} {
		st := storetest.Memory(t, tally.Config{})
		s := st.Session(parent)
		for _, turn := range []string{"a", "b", "c"} {
			mustTurns(t, s, turn)
		}
		for i, position := range []string{"#2", "~1", "@2", ""} {
			fork, _, err := s.Fork(t.Context(), position, "")
			if err != nil || fork.ID() != names[i] {
				t.Fatalf("fork of %s at %q: got %v, %v, want %s", parent, position, fork, err, names[i])
			}
			mustBe(t, fork, "", []string{"a", "b", "c"}[:2+i/3]...)
		}
	}
}

// Outline reads the end of a session, and of a fork, without the turns before it.
func TestOutline(t *testing.T) {
	st := storetest.Memory(t, tally.Config{Snapshots: &snapshot.Mem{}})
	s := st.Session("s")
	for _, turn := range []string{"a", "b", "c", "d"} {
		mustTurns(t, s, turn)
	}
	fork, _, err := s.Fork(t.Context(), "#3", "fork")
	must(t, err)
	for handle, want := range map[*tally.Session]string{s: `"c" "d"`, fork: `"b" "c"`} {
		o, err := handle.Outline(t.Context())
		must(t, err)
		turns, err := o.Last(t.Context(), events.MainThread, 2)
		must(t, err)
		if got := fmt.Sprintf("%s %s", turns[0].Raw, turns[1].Raw); got != want {
			t.Errorf("%s ends in %s, want %s", handle.ID(), got, want)
		}
	}
	if _, err := st.Session("nobody").Outline(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("outline of a missing session: got %v, want ErrNotFound", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Sessions with deliveries, claims or decisions can be neither rewound nor forked: each way returns an error with the
// kind, and writes nothing.
func TestKindsThatAreNotRewound(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		made := st.Session("made")
		_, err := made.Create(t.Context(), events.SessionCreated{Kind: events.KindLock, CreatedAt: "2026-01-01T00:00:00Z"})
		must(t, err)
		for id, kind := range map[string]string{"inbox/ada": "inbox", "queue/q": "queue", "item/q/1": "item", "flow/f": "flow", "made": "lock"} {
			s := st.Session(id)
			for _, text := range []string{`"one"`, `"two"`} {
				_, err := s.AppendTurns(t.Context(), events.MainThread, []byte(text))
				must(t, err)
			}
			head := mustBe(t, s, "", "one", "two").Offset()
			_, planned := s.PlanRewind(t.Context(), "#1", "")
			_, undone := s.PlanUndo(t.Context())
			_, moved := s.Move(t.Context(), &tally.Move{Event: &events.SessionRewound{To: head - 1}, Basis: head})
			_, _, forked := s.Fork(t.Context(), "", "")
			for what, err := range map[string]error{"plan": planned, "undo": undone, "move": moved, "fork": forked} {
				if k, ok := errors.AsType[*tally.KindError](err); !ok || k.ID != id || k.Have != kind || k.Want != "" || !strings.Contains(err.Error(), "neither rewound nor forked") {
					t.Errorf("%s of %s: got %v, want a *KindError", what, id, err)
				}
			}
			if now := mustBe(t, s, "", "one", "two"); now.Offset() != head {
				t.Errorf("%s: a refused call wrote a record", id)
			}
			// A rewind that is appended in another way has no effect.
			_, err := s.Append(t.Context(), log.At(head), &events.SessionRewound{To: head - 1})
			must(t, err)
			if now := mustBe(t, s, "", "one", "two"); len(now.Ledger.Rejected) != 1 || now.Ledger.Kind != kind {
				t.Errorf("%s: kind %s, rejected %v, want kind %s with the rewind rejected", id, now.Ledger.Kind, now.Ledger.Rejected, kind)
			}
		}
		job := st.Session("job/1")
		for _, text := range []string{`"one"`, `"two"`} {
			_, err := job.AppendTurns(t.Context(), events.MainThread, []byte(text))
			must(t, err)
		}
		m, err := job.PlanRewind(t.Context(), "#1", "")
		mustMove(t, job, m, err)
		mustBe(t, job, "", "one")
	})
}
