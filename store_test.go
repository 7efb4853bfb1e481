package tally_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// inMemory opens a store on a log in memory. After its Close nothing of it runs.
func inMemory(t *testing.T, c tally.Config) *tally.Store {
	t.Helper()
	before := goleak.IgnoreCurrent()
	now := time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC)
	l, err := log.OpenOn(t.Context(), logtest.NewMem(logtest.MemConfig{}), log.Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	st, err := tally.Open(t.Context(), l, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	})
	return st
}

func mustTurns(t *testing.T, s *tally.Session, turns ...string) log.Ack {
	t.Helper()
	var raw []json.RawMessage
	for _, turn := range turns {
		raw = append(raw, json.RawMessage(strconv.Quote(turn)))
	}
	ack, err := s.AppendTurns(t.Context(), events.MainThread, raw...)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

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
		t.Errorf("%s at %q: %q, want %q", s.ID(), position, got, want)
	}
	return state
}

func mustEvent(t *testing.T, s *tally.Session, p events.Payload) events.Event {
	t.Helper()
	e, err := events.New("urn:test", s.Subject(), p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustAppend(t *testing.T, st *tally.Store, s *tally.Session, expect log.Expect, e events.Event) log.Ack {
	t.Helper()
	ack, err := st.Append(t.Context(), s.Subject(), expect, e)
	if err != nil {
		t.Fatal(err)
	}
	return ack
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

var cost = &events.CostAccrued{Model: "m", USD: "0.5", Purpose: "run", Source: "reported"}

func TestCreate(t *testing.T) {
	st := inMemory(t, tally.Config{Actor: "me"})
	s := st.Session("s/1 é")
	if _, err := s.Load(t.Context(), ""); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load of nothing: %v", err)
	}
	p := events.SessionCreated{Kind: events.KindPanel, CreatedAt: "2026-01-01T00:00:00Z", Title: "t"}
	if ack, err := s.Create(t.Context(), p); err != nil || ack.First != 1 {
		t.Fatalf("%+v, %v", ack, err)
	}
	if _, err := s.Create(t.Context(), p); !errors.Is(err, tally.ErrExists) {
		t.Errorf("twice: %v", err)
	}
	other := st.Session("by its first turn")
	mustTurns(t, other, "x")
	if _, err := other.Create(t.Context(), p); !errors.Is(err, tally.ErrExists) {
		t.Errorf("after a turn: %v", err)
	}
	if state := mustBe(t, s, "head"); state.Ledger.Kind != events.KindPanel || state.Ledger.Text("title") != "t" {
		t.Errorf("%+v", state.Ledger)
	}
	rec, err := st.Log.Record(t.Context(), 1)
	if err != nil || rec.Extensions[events.ExtActor] != "me" || rec.Source != "urn:tally:go" || rec.ID == "" || rec.Time.Hour() != 10 {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, err := st.Session("").Create(t.Context(), p); !invalid(err) {
		t.Errorf("without an id: %v", err)
	}
	if _, err := s.AppendTurns(t.Context(), "", json.RawMessage(`1`)); !invalid(err) {
		t.Errorf("a thread without a name: %v", err)
	}
	if _, err := s.AppendTurns(t.Context(), "main"); !invalid(err) {
		t.Errorf("no turns: %v", err)
	}
	if _, err := s.AppendTurns(t.Context(), "main", json.RawMessage(`{`)); !invalid(err) {
		t.Errorf("no JSON: %v", err)
	}
}

func invalid(err error) bool {
	_, ok := errors.AsType[*events.InvalidError](err)
	return ok
}

func TestLoad(t *testing.T) {
	for name, c := range map[string]tally.Config{"plain": {}, "with snapshots": {Snapshots: &snapshot.Mem{}, Keep: true, Policy: projector.Policy{Records: 1}}} {
		t.Run(name, func(t *testing.T) {
			st := inMemory(t, c)
			s := st.Session("s")
			mustTurns(t, s, "a")                                 // @1
			mustTurns(t, s, "b", "c")                            // @2
			mustAppend(t, st, s, log.Any, mustEvent(t, s, cost)) // @3
			mustTurns(t, s, "d")                                 // @4
			fork, ack, err := s.Fork(t.Context(), "#2", "fork")  // @5
			if err != nil || ack.First != 5 {
				t.Fatalf("%+v, %v", ack, err)
			}
			mustTurns(t, s, "e")    // @6
			mustTurns(t, fork, "x") // @7
			m, err := s.PlanRewind(t.Context(), "~3", "")
			mustMove(t, s, m, err) // @8
			mustBe(t, s, "", "a")
			mustBe(t, s, "head", "a")
			mustBe(t, s, "@7", "a", "b", "c", "d", "e")
			mustBe(t, s, "#1", "a")
			mustBe(t, s, "@2", "a", "b", "c")
			mustBe(t, s, "~0", "a")
			if start := mustBe(t, s, "start"); start.Offset() != 0 {
				t.Errorf("start is at %v", start.Offset())
			}
			mustBe(t, s, "@0")
			mustBe(t, fork, "head", "a", "b", "c", "x")
			mustBe(t, fork, "@6", "a", "b", "c")
			mustBe(t, fork, "#3", "a", "b", "c")
			mustBe(t, fork, "@1", "a")
			mustBe(t, fork, "~3", "a")
			if early := mustBe(t, fork, "@2", "a", "b", "c"); early.Ledger.Records != 0 {
				t.Error("before its first record nothing has happened to a fork")
			}
			if state := mustBe(t, fork, "", "a", "b", "c", "x"); state.Ledger.Spent().Events != 0 || state.Ledger.CreatedAt != "2026-08-22T10:00:00.000Z" {
				t.Errorf("of the fork: %+v", state.Ledger)
			}
			for position, want := range map[string]error{"#2": tally.ErrNotFound, "~2": tally.ErrNotFound, "e:missing": tally.ErrNotFound} {
				if _, err := s.Load(t.Context(), position); !errors.Is(err, want) {
					t.Errorf("%s: %v", position, err)
				}
			}
			if _, err := s.Load(t.Context(), "nonsense"); !invalid(err) {
				t.Errorf("nonsense: %v", err)
			}
		})
	}
}

func TestMoves(t *testing.T) {
	st := inMemory(t, tally.Config{})
	s := st.Session("s")
	if _, err := s.PlanUndo(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("undo of nothing: %v", err)
	}
	mustTurns(t, s, "a", "b")
	mustTurns(t, s, "c")
	if _, err := s.PlanUndo(t.Context()); !errors.Is(err, projector.ErrNothingToUndo) {
		t.Errorf("undo: %v", err)
	}
	if _, err := s.PlanRedo(t.Context()); !errors.Is(err, projector.ErrNothingToRedo) {
		t.Errorf("redo: %v", err)
	}
	if _, err := s.PlanRewind(t.Context(), "start", ""); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("rewind to start: %v", err)
	}
	m, err := s.PlanRewind(t.Context(), "#1", "too far")
	if err != nil || m.Event.To != 1 || m.Event.Reason != "too far" || m.Seen != 2 || len(m.Leaves) != 1 || m.Leaves[0].Number != 3 || len(m.Returns) != 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	mustBe(t, s, "", "a", "b", "c") // a plan changes nothing
	mustMove(t, s, m, nil)
	mustBe(t, s, "", "a", "b")
	m, err = s.PlanUndo(t.Context())
	if err != nil || len(m.Leaves) != 0 || len(m.Returns) != 1 || m.Event.Undoes != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	mustMove(t, s, m, nil)
	mustBe(t, s, "", "a", "b", "c")
	m, err = s.PlanRedo(t.Context())
	mustMove(t, s, m, err)
	mustBe(t, s, "", "a", "b")
}

// A turn or a rewind after the plan is a conflict; cost, progress and fields are
// not.
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
			st := inMemory(t, tally.Config{})
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
				t.Fatalf("move: %v", err)
			}
			if head, err := st.Log.Head(t.Context()); err != nil || (head == 3) != c.conflict {
				t.Errorf("the head is %v, %v", head, err)
			}
		})
	}
}

// An answer whose producer had seen what is gone meanwhile is kept, is not live,
// and costs what it cost.
func TestLateAnswer(t *testing.T) {
	st := inMemory(t, tally.Config{Snapshots: &snapshot.Mem{}})
	s := st.Session("s")
	mustTurns(t, s, "a")
	mustTurns(t, s, "question")
	seen := func(p events.Payload, at events.Offset) events.Event {
		return mustEvent(t, s, p).WithExtension(events.ExtSeen, at.Padded())
	}
	turn := func(text string) *events.TurnAppended {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(strconv.Quote(text))}}}
	}
	m, err := s.PlanRewind(t.Context(), "#1", "")
	mustMove(t, s, m, err) // @3
	answer := seen(turn("answer"), 2)
	answer.ID = "answer"
	if ack := mustAppend(t, st, s, log.Any, answer); !ack.Late || ack.Duplicate || ack.First != 4 {
		t.Errorf("%+v", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, answer); !ack.Late || !ack.Duplicate || ack.First != 4 {
		t.Errorf("again: %+v", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, seen(cost, 2)); !ack.Late {
		t.Errorf("%+v", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, seen(turn("in time"), 5)); ack.Late {
		t.Errorf("%+v", ack)
	}
	if ack := mustAppend(t, st, s, log.Any, seen(turn("of what was never gone"), 1)); ack.Late {
		t.Errorf("%+v", ack)
	}
	state := mustBe(t, s, "", "a", "in time", "of what was never gone")
	if late := state.History.Late(); !slices.Equal(late, []events.Offset{4, 5}) {
		t.Errorf("late: %v", late)
	}
	if spent, branch := state.Ledger.Spent(), state.OnBranch(); spent.USD != "0.5" || branch.Events != 0 {
		t.Errorf("spent %+v, on this branch %+v", spent, branch)
	}
	gone, err := st.Loader().Gone(t.Context(), state)
	if err != nil || len(gone) != 2 {
		t.Errorf("gone: %v, %v", gone, err)
	}
}

func TestFork(t *testing.T) {
	st := inMemory(t, tally.Config{})
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
		t.Errorf("twice: %v", err)
	}
	mustTurns(t, fork, "b")
	mustTurns(t, s, "c")
	state := mustBe(t, fork, "", "a", "b")
	if l := state.Ledger; l.Kind != events.KindPanel || l.Text("title") != "t" || *l.Fork != (events.Fork{Session: "s", Offset: 2}) || l.Parent != nil {
		t.Errorf("%+v", l)
	}
	mustBe(t, s, "", "a", "c")
	for _, position := range []string{"start", "@2", "#1"} { // before its own first record
		if _, _, err := fork.Fork(t.Context(), position, "another"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("fork of a fork at %s: %v", position, err)
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
		t.Errorf("fork of nobody: %v", err)
	}
}

// Eight who each add to one number lose nothing.
func TestUpdateUnderContention(t *testing.T) {
	st := inMemory(t, tally.Config{})
	s := st.Session("counter")
	const workers, times = 8, 5
	add := func(state *projector.Session) ([]events.Event, error) {
		n := 0
		if raw, ok := state.Ledger.Fields.Get("count"); ok {
			if err := json.Unmarshal(raw, &n); err != nil {
				return nil, err
			}
		}
		return []events.Event{mustEvent(t, s, &events.SessionUpdated{Set: events.Fields{{Name: "count", Value: events.Raw(strconv.Itoa(n + 1))}}})}, nil
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range times {
				for { // more than thirty collisions are the caller's to repeat
					_, err := st.Update(t.Context(), s.Subject(), []string{events.TypeSessionUpdated}, add)
					if err == nil {
						break
					}
					if !errors.Is(err, log.ErrConflict) {
						t.Error(err)
						return
					}
				}
				mustTurns(t, s, "in nobody's way")
			}
		})
	}
	wg.Wait()
	state, err := s.Load(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := state.Ledger.Fields.Get("count"); string(n) != strconv.Itoa(workers*times) || len(state.Threads.Turns("main")) != workers*times {
		t.Errorf("count %s, turns %d", n, len(state.Threads.Turns("main")))
	}
}

func TestUpdate(t *testing.T) {
	st := inMemory(t, tally.Config{})
	s := st.Session("s")
	wrong := errors.New("wrong")
	update := func(types []string, decide func(*projector.Session) ([]events.Event, error)) (log.Ack, error) {
		return st.Update(t.Context(), s.Subject(), types, decide)
	}
	if _, err := update(nil, func(*projector.Session) ([]events.Event, error) { return nil, wrong }); !errors.Is(err, wrong) {
		t.Errorf("decide fails: %v", err)
	}
	if ack, err := update(nil, func(*projector.Session) ([]events.Event, error) { return nil, nil }); err != nil || ack != (log.Ack{}) {
		t.Errorf("nothing to do: %+v, %v", ack, err)
	}
	calls := 0
	ack, err := update(projector.MoveTypes(), func(state *projector.Session) ([]events.Event, error) {
		if calls++; calls == 1 {
			mustTurns(t, s, "somebody was first")
		}
		return []events.Event{mustEvent(t, s, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(strconv.Itoa(len(state.Threads.Turns("main"))))}}})}, nil
	})
	if err != nil || ack.First != 2 || calls != 2 {
		t.Errorf("%+v after %d calls, %v", ack, calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = st.Update(ctx, s.Subject(), nil, func(*projector.Session) ([]events.Event, error) {
		mustTurns(t, s, "always first")
		cancel()
		return []events.Event{mustEvent(t, s, cost)}, nil
	})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, log.ErrConflict) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	st := inMemory(t, tally.Config{})
	acme, err := st.In("acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.In("no.name"); !invalid(err) {
		t.Errorf("no name: %v", err)
	}
	mustTurns(t, st.Session("s"), "mine")
	mustTurns(t, acme.Session("s"), "theirs")
	mustTurns(t, acme.Session("t"), "theirs too")
	mustBe(t, st.Session("s"), "", "mine")
	mustBe(t, acme.Session("s"), "", "theirs")
	fork, _, err := acme.Session("s").Fork(t.Context(), "", "fork")
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, fork, "", "theirs")
	for st, want := range map[*tally.Store]string{st: "default: s:1", acme: "acme: fork:1 s:1 t:1"} {
		got := st.Namespace() + ":"
		for info, err := range st.Subjects(t.Context(), events.KindSession) {
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprintf(" %s:%d", info.Subject.ID, info.Count)
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	sum := mustBlob(t, acme, []byte("content"))
	if _, err := st.Blob(t.Context(), sum); err == nil {
		t.Error("another namespace's content is seen")
	}
}

func mustBlob(t *testing.T, st *tally.Store, content []byte) (sum string) {
	t.Helper()
	ref, err := st.PutBlob(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	sum, ok := events.ParseBlobRef(ref)
	if !ok {
		t.Fatalf("%q is no reference", ref)
	}
	got, err := st.Blob(t.Context(), sum)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	return sum
}

// Equal content is stored once, whatever its size; what was purged is stored anew.
func TestPutBlob(t *testing.T) {
	st := inMemory(t, tally.Config{})
	head := func() events.Offset {
		t.Helper()
		at, err := st.Log.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for size, parts := range map[int]events.Offset{0: 1, 1: 1, events.MaxBlobPart: 1, events.MaxBlobPart + 1: 2, 9 << 20: 3} {
		content := bytes.Repeat([]byte{byte(size), 0xff}, size/2+1)[:size]
		before := head()
		sum := mustBlob(t, st, content)
		if n := head() - before; n != parts {
			t.Errorf("%d bytes are %d records, want %d", size, n, parts)
		}
		before = head()
		if mustBlob(t, st, content) != sum || head() != before {
			t.Errorf("%d bytes are stored twice", size)
		}
		doc := events.Document("", events.KindBlob, sum)
		for range 2 {
			e, err := events.New("urn:test", doc, &events.DocumentDeleted{Reason: events.ReasonPurged})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Append(t.Context(), doc, log.At(head()), e); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Blob(t.Context(), sum); err == nil {
				t.Error("what was purged can be read")
			}
			mustBlob(t, st, content)
		}
	}
}

// A turn that no event can hold is kept by reference and shown byte for byte; one
// beyond the bound is refused, and nothing of its append is written.
func TestLargeTurns(t *testing.T) {
	st := inMemory(t, tally.Config{MaxValue: 10 << 20})
	s := st.Session("s")
	large := strings.Repeat("x日é", (9<<20)/6)
	mustTurns(t, s, "small")
	mustTurns(t, s, large)
	mustTurns(t, s, "small too")
	mustBe(t, s, "", "small", large, "small too")
	mustBe(t, s, "#2", "small", large)
	m, err := s.PlanRewind(t.Context(), "#1", "")
	if err != nil || len(m.Leaves) != 2 || len(m.Leaves[0].Raw) != len(large)+2 {
		t.Fatal(len(m.Leaves), err)
	}
	head, err := st.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AppendTurns(t.Context(), "main", json.RawMessage(`"`+strings.Repeat("x", 10<<20)+`"`))
	if !invalid(err) {
		t.Errorf("too large: %v", err)
	}
	// One large and valid, one wrong: nothing is written, no blob either.
	good := mustEvent(t, s, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: json.RawMessage(`"` + strings.Repeat("y", 9<<20) + `"`)}}})
	bad := mustEvent(t, s, cost)
	bad.Data = []byte(`{"model":7}`)
	if _, err := st.Append(t.Context(), s.Subject(), log.Any, good, bad); !invalid(err) {
		t.Errorf("one is wrong: %v", err)
	}
	bad.Data = append([]byte(`{"model":7}`), bytes.Repeat([]byte(" "), 9<<20)...)
	if _, err := st.Append(t.Context(), s.Subject(), log.Any, good, bad); !invalid(err) {
		t.Errorf("a large one is wrong: %v", err)
	}
	if now, err := st.Log.Head(t.Context()); err != nil || now != head {
		t.Errorf("%d records were written, %v", now-head, err)
	}
	// The same event again is known by its identity.
	good.ID = "good"
	first := mustAppend(t, st, s, log.Any, good)
	if again := mustAppend(t, st, s, log.Any, good); again.First != first.First || !again.Duplicate {
		t.Errorf("%+v, then %+v", first, again)
	}
}

// Close writes the snapshots of what changed and ends what the store runs.
func TestCloseKeepsSnapshots(t *testing.T) {
	kept, closed := &snapshot.Mem{}, 0
	l, err := log.OpenOn(t.Context(), logtest.NewMem(logtest.MemConfig{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("wrong")
	st, err := tally.Open(t.Context(), l, tally.Config{Snapshots: kept, Keep: true, Cursor: t.TempDir() + "/cursor", OnClose: func() error { closed++; return wrong }})
	if err != nil {
		t.Fatal(err)
	}
	mustTurns(t, st.Session("s"), "a")
	if err := st.Close(); !errors.Is(err, wrong) || closed != 1 {
		t.Errorf("close: %v, %d times", err, closed)
	}
	list, err := kept.List(t.Context(), events.Session("", "s"), projector.SessionFold)
	if err != nil || len(list) != 1 || list[0].Offset != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := tally.Open(t.Context(), l, tally.Config{Namespace: "no.name"}); !invalid(err) {
		t.Errorf("no name: %v", err)
	}
	if _, err := st.Session("s").Load(t.Context(), ""); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("load after close: %v", err)
	}
}
