package tally_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

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

var cost = &events.CostAccrued{Model: "m", USD: "0.5", Purpose: "run", Source: "reported"}

func TestCreate(t *testing.T) {
	st := storetest.Memory(t, tally.Config{Actor: "me"})
	s := st.Session("s/1 é")
	if _, err := s.Load(t.Context(), ""); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load of a missing session: got %v, want ErrNotFound", err)
	}
	p := events.SessionCreated{Kind: events.KindPanel, CreatedAt: "2026-01-01T00:00:00Z", Title: "t"}
	if ack, err := s.Create(t.Context(), p); err != nil || ack.First != 1 {
		t.Fatalf("create: got %+v, %v, want offset 1", ack, err)
	}
	if _, err := s.Create(t.Context(), p); !errors.Is(err, tally.ErrExists) {
		t.Errorf("created twice: got %v, want ErrExists", err)
	}
	other := st.Session("by its first turn")
	mustTurns(t, other, "x")
	if _, err := other.Create(t.Context(), p); !errors.Is(err, tally.ErrExists) {
		t.Errorf("create after a turn: got %v, want ErrExists", err)
	}
	if state := mustBe(t, s, "head"); state.Ledger.Kind != events.KindPanel || state.Ledger.Text("title") != "t" {
		t.Errorf("got ledger %+v, want kind panel and title t", state.Ledger)
	}
	rec, err := st.Log.Record(t.Context(), 1)
	if err != nil || rec.Extensions[events.ExtActor] != "me" || rec.Source != "urn:tally:go" || rec.ID == "" || rec.Time.Hour() != 10 {
		t.Errorf("got record %+v, %v, want actor, source, id and time", rec, err)
	}
	if _, err := st.Session("").Create(t.Context(), p); !invalid(err) {
		t.Errorf("session without an id: got %v, want an *InvalidError", err)
	}
	if _, err := s.AppendTurns(t.Context(), "", json.RawMessage(`1`)); !invalid(err) {
		t.Errorf("thread without a name: got %v, want an *InvalidError", err)
	}
	if _, err := s.AppendTurns(t.Context(), "main"); !invalid(err) {
		t.Errorf("append without turns: got %v, want an *InvalidError", err)
	}
	if _, err := s.AppendTurns(t.Context(), "main", json.RawMessage(`{`)); !invalid(err) {
		t.Errorf("turn that is not JSON: got %v, want an *InvalidError", err)
	}
}

func invalid(err error) bool {
	_, ok := errors.AsType[*events.InvalidError](err)
	return ok
}

func TestLoad(t *testing.T) {
	for name, c := range map[string]tally.Config{"plain": {}, "with snapshots": {Snapshots: &snapshot.Mem{}, Host: tally.Host{Keep: true, Policy: projector.Policy{Records: 1}}}} {
		t.Run(name, func(t *testing.T) {
			st := storetest.Memory(t, c)
			s := st.Session("s")
			mustTurns(t, s, "a")                                 // @1
			mustTurns(t, s, "b", "c")                            // @2
			mustAppend(t, st, s, log.Any, mustEvent(t, s, cost)) // @3
			mustTurns(t, s, "d")                                 // @4
			fork, ack, err := s.Fork(t.Context(), "#2", "fork")  // @5
			if err != nil || ack.First != 5 {
				t.Fatalf("fork: got %+v, %v, want offset 5", ack, err)
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
				t.Errorf("start is at %v, want 0", start.Offset())
			}
			mustBe(t, s, "@0")
			mustBe(t, fork, "head", "a", "b", "c", "x")
			mustBe(t, fork, "@6", "a", "b", "c")
			mustBe(t, fork, "#3", "a", "b", "c")
			mustBe(t, fork, "@1", "a")
			mustBe(t, fork, "~3", "a")
			if early := mustBe(t, fork, "@2", "a", "b", "c"); early.Ledger.Records != 0 {
				t.Error("the ledger of a fork before its first record has records")
			}
			if state := mustBe(t, fork, "", "a", "b", "c", "x"); state.Ledger.Spent().Events != 0 || state.Ledger.CreatedAt != "2026-08-22T10:00:00.000Z" {
				t.Errorf("got ledger %+v of the fork, want its own time and no costs", state.Ledger)
			}
			for position, want := range map[string]error{"#2": tally.ErrNotFound, "~2": tally.ErrNotFound, "e:missing": tally.ErrNotFound} {
				if _, err := s.Load(t.Context(), position); !errors.Is(err, want) {
					t.Errorf("%s: got %v, want ErrNotFound", position, err)
				}
			}
			if _, err := s.Load(t.Context(), "nonsense"); !invalid(err) {
				t.Errorf("invalid position: got %v, want an *InvalidError", err)
			}
		})
	}
}

// The packages have one ErrNotFound.
func TestOneNotFound(t *testing.T) {
	for _, err := range []error{log.ErrNotFound, projector.ErrNotFound, tally.ErrNotFound} {
		if !errors.Is(err, events.ErrNotFound) {
			t.Errorf("%v is not events.ErrNotFound", err)
		}
	}
}

func TestNamespaces(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	acme, err := st.In("acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.In("no.name"); !invalid(err) {
		t.Errorf("invalid namespace: got %v, want an *InvalidError", err)
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
			t.Errorf("got subjects %s, want %s", got, want)
		}
	}
	sum := mustBlob(t, acme, []byte("content"))
	if _, err := st.Blob(t.Context(), sum); err == nil {
		t.Error("a blob of another namespace can be read")
	}
}

// Close writes the snapshots of changed sessions, then closes the log and calls OnClose.
func TestCloseKeepsSnapshots(t *testing.T) {
	kept, closed := &snapshot.Mem{}, 0
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("wrong")
	st, err := tally.Open(t.Context(), l, tally.Config{Snapshots: kept, Host: tally.Host{Keep: true, Policy: projector.Policy{Records: 2}, Cursor: t.TempDir() + "/cursor", OnClose: func() error { closed++; return wrong }}})
	if err != nil {
		t.Fatal(err)
	}
	mustTurns(t, st.Session("s"), "a")
	if err := st.Close(); !errors.Is(err, wrong) || closed != 1 {
		t.Errorf("close: got %v, OnClose was called %d times, want its error, once", err, closed)
	}
	list, err := kept.List(t.Context(), events.Session("", "s"), projector.SessionFold)
	if err != nil || len(list) != 1 || list[0].Offset != 1 {
		t.Errorf("snapshots: got %v, %v, want one at 1", list, err)
	}
	if _, err := tally.Open(t.Context(), l, tally.Config{Namespace: "no.name"}); !invalid(err) {
		t.Errorf("invalid namespace: got %v, want an *InvalidError", err)
	}
	if _, err := st.Session("s").Load(t.Context(), ""); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("load after close: got %v, want ErrUnavailable", err)
	}
}

// A session has the same turns on every backend.
func TestBackends(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s := st.Session("s")
		if _, err := s.AppendTurns(t.Context(), "main", []byte(`{"role": "user"}`)); err != nil {
			t.Fatal(err)
		}
		state, err := s.Load(t.Context(), "")
		if err != nil || string(state.Threads.Turns("main")[0].Raw) != `{"role": "user"}` {
			t.Fatalf("load: got %v, %v, want the turn byte for byte", state, err)
		}
	})
}
