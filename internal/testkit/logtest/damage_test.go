package logtest_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// TestDamageIsYieldedInPlace reads around records that cannot be read.
func TestDamageIsYieldedInPlace(t *testing.T) {
	m := memlog.New(memlog.Config{})
	l := logtest.OpenOn(t, m, log.Config{})
	a, b := events.Session("", "a"), events.Session("", "b")
	for i := range 12 { // a is odd, b is even
		if _, err := l.Append(t.Context(), []events.Subject{a, b}[i%2], log.Any, turn("id"+strconv.Itoa(i), "x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []events.Offset{1, 6, 7, 12} {
		m.Damage(at)
	}
	for _, c := range []struct {
		r    events.Range
		want string
	}{
		{events.Range{}, "[!1 2 3 4 5 !6 !7 8 9 10 11 !12]"},
		{events.Range{After: 5, Upto: 8}, "[!6 !7 8]"},
		{events.Range{Limit: 2}, "[!1 2 3]"},
		{events.Range{Subject: a}, "[!1 3 5 !6 !7 9 11 !12]"},
		{events.Range{Subject: b}, "[!1 2 4 !6 !7 8 10 !12]"},
		{events.Range{Subject: b, Upto: 4}, "[2 4]"},
		{events.Range{Subject: a, After: 1, Upto: 5}, "[3 5]"},
		{events.Range{Subject: a, After: 7}, "[9 11]"},
		{events.Range{Kind: "session", After: 4, Upto: 8}, "[5 !6 !7 8]"},
	} {
		forward := []string{}
		for rec, err := range l.Read(t.Context(), c.r) {
			forward = append(forward, show(t, rec, err))
		}
		if got := fmt.Sprint(forward); got != c.want {
			t.Errorf("read %+v: got %s, want %s", c.r, got, c.want)
		}
	}
	var back []string
	for rec, err := range l.ReadBack(t.Context(), events.Range{Subject: b}) {
		back = append(back, show(t, rec, err))
	}
	if got, want := fmt.Sprint(back), "[!12 10 8 !7 !6 4 2 !1]"; got != want {
		t.Errorf("read back: got %s, want %s", got, want)
	}
	var followed []string
	for rec, err := range l.Follow(t.Context(), events.Range{Subject: a}) {
		if followed = append(followed, show(t, rec, err)); len(followed) == 8 {
			break
		}
	}
	if got, want := fmt.Sprint(followed), "[!1 3 5 !6 !7 9 11 !12]"; got != want {
		t.Errorf("follow: got %s, want %s", got, want)
	}
	_, err := l.Record(t.Context(), 6)
	if damage, ok := errors.AsType[*events.DamageError](err); !ok || damage.Offset != 6 {
		t.Errorf("record 6: got the error %v, want damage", err)
	}
	// Appends continue: the id of an unreadable record is unknown, those of the others are known.
	for i, want := range map[int]bool{2: true, 4: true, 6: false} {
		ack, err := l.Append(t.Context(), a, log.Any, turn("id"+strconv.Itoa(i), "x"), turn("new"+strconv.Itoa(i), "x"))
		if _, partial := errors.AsType[*log.PartialError](err); partial != want && err != nil {
			t.Errorf("id%d again: %+v, %v", i, ack, err)
		}
	}
}

func show(t *testing.T, rec events.Record, err error) string {
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return fmt.Sprint("!", uint64(damage.Offset))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(uint64(rec.Offset))
}
