package log_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// amnesiac is a Backend that has lost a record and does not count it any more.
type amnesiac struct {
	*memlog.Backend
	subject string
	at      events.Offset
}

func (f amnesiac) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	c, err := f.Backend.Scan(ctx, q)
	if q.Filter == f.subject && q.After < f.at && err == nil {
		c = oneLess{c}
	}
	return c, err
}

type oneLess struct{ log.Cursor }

func (c oneLess) Announced(ctx context.Context) (uint64, error) {
	n, err := c.Cursor.Announced(ctx)
	return n - 1, err
}

// A loss that a read finds is reported by every read of its subject, and by the reads of all subjects if its subject is
// unknown, from Tell on: the backend may have forgotten the record.
func TestFoundLossesAreReported(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	var found []events.Offset
	a, b := events.Session("", "a"), events.Session("", "b")
	l, err := log.OpenOn(t.Context(), amnesiac{mem, a.NATS(), 2}, log.Config{Host: log.Host{Found: func(at events.Offset) { found = append(found, at) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, sub := range []events.Subject{a, a, b, a} {
		if _, err := l.Append(t.Context(), sub, log.Any, someTurn(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	mem.Damage(2)
	look := func(when string, r events.Range, want string) {
		t.Helper()
		if got := fmt.Sprint(show(t, l, r)); got != want {
			t.Errorf("%s: a read of %v returned %s, want %s", when, r.Subject, got, want)
		}
	}
	look("before", events.Range{Subject: a}, "[1 4]")
	look("before", events.Range{}, "[1 !2 3 4]")
	if fmt.Sprint(found) != "[@2]" {
		t.Errorf("reported losses: got %v, want [@2]", found)
	}
	l.Tell([]log.Hole{{Offset: 2, Subject: a.NATS()}, {Offset: 3, Subject: a.NATS()}})
	look("told the subject", events.Range{Subject: a}, "[1 !2 4]")
	look("told the subject", events.Range{Subject: b}, "[3]")
	look("told the subject", events.Range{}, "[1 !2 3 4]")
	for at, want := range map[events.Offset]bool{0: true, 1: true, 2: false} {
		if l.LostBehind(a, at) != want || l.LostBehind(b, at) {
			t.Errorf("LostBehind(%v): got %v for a, %v for b, want %v, false", at, l.LostBehind(a, at), l.LostBehind(b, at), want)
		}
	}
	l.Tell([]log.Hole{{Offset: 2}})
	if !l.LostBehind(b, 1) {
		t.Error("LostBehind is false for a lost record of unknown subject")
	}
	look("told that the subject is unknown", events.Range{Subject: b}, "[!2 3]")
	if n := l.Lost(); n != 1 {
		t.Errorf("Lost is %d, want 1", n)
	}
	l.Lose([]log.Hole{{Offset: 2, Subject: a.NATS()}})
	look("known", events.Range{Subject: a}, "[1 !2 4]")
	look("known", events.Range{Subject: b}, "[3]")
	t.Run("net D1 a loss that reads found and that is known now is listed once", func(t *testing.T) {
		if list := l.Unreadable(); len(list) != 1 || list[0].Subject != a.NATS() || l.Lost() != 1 {
			t.Errorf("got %v, and %d are lost, want the one", list, l.Lost())
		}
	})
}

// beheaded is a Backend that has lost its first records, or its last one, and does not count them any more.
type beheaded struct {
	*memlog.Backend
	first, last events.Offset
}

func (b beheaded) State(ctx context.Context) (log.State, error) {
	st, err := b.Backend.State(ctx)
	st.First = b.first
	return st, err
}

func (b beheaded) Last(ctx context.Context, _ string) (log.Message, error) { return b.Get(ctx, b.last) }

// Reads and lists report known losses that the backend has forgotten, and no others.
func TestKnownLosses(t *testing.T) {
	ctx, mem := t.Context(), shared{memlog.New(memlog.Config{})}
	a, other := events.Session("", "a"), events.Session("team", "a")
	writer := logtest.OpenOn(t, mem, log.Config{})
	var holes []log.Hole
	for _, sub := range []events.Subject{a, a, other, a, a, a} {
		ack := mustAppend(t, writer, sub, note("", "x"))
		if at := ack.Last; at < 4 || at > 5 {
			mem.Damage(at)
			holes = append(holes, log.Hole{Offset: at, Subject: sub.NATS()})
		}
	}
	l := logtest.OpenOn(t, beheaded{mem.Backend, 4, 5}, log.Config{Host: log.Host{Holes: holes}})
	t.Run("net D1 a read reports the losses of its stretch at the beginning of the log", func(t *testing.T) {
		if got := fmt.Sprint(show(t, l, events.Range{Upto: 2})); got != "[!1 !2]" {
			t.Errorf("got %s, want [!1 !2]", got)
		}
	})
	t.Run("net D1 a backward read reports a loss at the end of the log", func(t *testing.T) {
		var lost []events.Offset
		for _, err := range l.ReadBack(ctx, events.Range{Subject: a, After: 4}) {
			if damage, is := errors.AsType[*events.DamageError](err); is {
				lost = append(lost, damage.Offset)
			}
		}
		if fmt.Sprint(lost) != "[@6]" {
			t.Errorf("got %v, want [@6]", lost)
		}
	})
	t.Run("net D1 an append is refused if a record was lost behind its expectation", func(t *testing.T) {
		b := events.Session("", "b")
		for _, expect := range []log.Expect{log.At(5), log.Since(5, "com.example.note")} {
			if _, err := l.Append(ctx, a, expect, note("", "x")); !events.IsDamage(err) {
				t.Errorf("%v: got %v, want the damage", expect, err)
			}
			for _, guard := range [][]events.Event{nil, {note("", "x")}} {
				_, err := l.AppendAll(ctx, log.Part{Subject: a, Expect: expect, Events: guard}, log.Part{Subject: b, Events: []events.Event{note("", "x")}})
				if !events.IsDamage(err) {
					t.Errorf("%v, a part with %d events: got %v, want the damage", expect, len(guard), err)
				}
			}
		}
	})
	t.Run("net D1 a list names lost subjects of its namespace", func(t *testing.T) {
		var got []string
		for info, err := range l.Subjects(ctx, events.DefaultNamespace, "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Subject.Name())
		}
		if fmt.Sprint(got) != fmt.Sprint([]string{a.Name()}) {
			t.Errorf("got %v, want %v", got, a.Name())
		}
	})
}
