package log_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
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
}
