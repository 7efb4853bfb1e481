package log_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// If several ids of a subject have the same hash, the look-up finds the right record.
func TestIDsOfOneHash(t *testing.T) {
	l := logtest.Open(t)
	a := events.Session("", "a")
	for i, id := range []string{"x", "y", "z"} {
		if ack := mustAppend(t, l, a, note(id, id)); ack.Last != events.Offset(i+1) {
			t.Fatalf("%s is at %v, want %d", id, ack.Last, i+1)
		}
	}
	l.MisplaceIDs(a, 1)
	for i, id := range []string{"x", "y", "z"} {
		if ack := mustAppend(t, l, a, note(id, id)); !ack.Duplicate || ack.Last != events.Offset(i+1) {
			t.Fatalf("repeated %s: got %+v, want a duplicate at %d", id, ack, i+1)
		}
	}
}

// A log finds events that another log on the same backend appended, also after it has indexed the subject.
func TestTwoLogsOnOneBackend(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	one, two := logtest.OpenOn(t, mem, log.Config{}), logtest.OpenOn(t, shared{mem}, log.Config{})
	a := events.Session("", "a")
	for i := range 10 {
		id := string(rune('a' + i))
		first := mustAppend(t, one, a, note(id, id))
		mustAppend(t, two, a, note("", "between"))
		again := mustAppend(t, two, a, note(id, id))
		if !again.Duplicate || again.Last != first.Last {
			t.Fatalf("repeated %s: got %+v, want a duplicate of %+v", id, again, first)
		}
	}
}

// shared is a backend that a log does not close.
type shared struct{ *memlog.Backend }

func (shared) Close() error { return nil }

func TestOpenWithoutABackendPanics(t *testing.T) {
	for name, open := range map[string]func(){
		"OpenOn": func() { log.OpenOn(t.Context(), nil, log.Config{}) },
		"Open":   func() { log.Open(t.Context(), nil, log.Config{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s with nil does not panic", name)
				}
			}()
			open()
		}()
	}
}

// counted counts the reads of a backend.
type counted struct {
	log.Backend
	scans *int
}

func (b counted) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	*b.scans++
	return b.Backend.Scan(ctx, q)
}

// In TestSinceReadsNothing the only writer appends with Since: the log knows the types along with the ids that it read
// once, and refuses an append if an excluded type came.
func TestSinceReadsNothing(t *testing.T) {
	scans := 0
	l := logtest.OpenOn(t, counted{memlog.New(memlog.Config{}), &scans}, log.Config{Host: log.Host{Owner: true}})
	a := events.Session("", "a")
	mustAppend(t, l, a, note("first", "first"))
	mustAppend(t, l, a, note("first", "first")) // looked up
	moved := note("moved", "moved")
	moved.Type = "acme.moved"
	for _, id := range []string{"", "named"} { // a new id, and a caller's id, which is looked up
		scans = 0
		for i := range 100 {
			e := note(id, "x")
			if id != "" {
				e.ID = fmt.Sprint(id, i)
			}
			if _, err := l.Append(t.Context(), a, log.Since(1, moved.Type, "acme.replaced"), e); err != nil {
				t.Fatal(err)
			}
		}
		if scans > 0 {
			t.Errorf("100 appends with id %q made %d reads, want none", id, scans)
		}
	}
	at := mustAppend(t, l, a, moved).Last
	for _, id := range []string{"", "late"} {
		if _, err := l.Append(t.Context(), a, log.Since(1, moved.Type), note(id, "x")); !errors.Is(err, log.ErrConflict) {
			t.Errorf("id %q after an excluded type: got %v, want ErrConflict", id, err)
		}
		if _, err := l.Append(t.Context(), a, log.Since(at, moved.Type), note(id, "x")); err != nil {
			t.Errorf("id %q, expecting the record of the excluded type: %v", id, err)
		}
	}
	if ack, err := l.Append(t.Context(), a, log.Since(1, "acme.replaced"), note("named7", "x")); err != nil || !ack.Duplicate {
		t.Errorf("event that is stored already: got %+v, %v, want a duplicate", ack, err)
	}
}

// TestSinceOfManyTypes appends more types to a subject than are kept: types that are not kept are read, whether they
// came before or after the limit was reached.
func TestSinceOfManyTypes(t *testing.T) {
	testkit.NotUnderRace(t) // nothing runs beside it
	l := logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{Host: log.Host{Owner: true}})
	a := events.Session("", "a")
	const types = 200
	places := make([]events.Offset, types)
	for i := range types {
		e := note(fmt.Sprint("e", i), "x")
		e.Type = fmt.Sprint("acme.t", i)
		places[i] = mustAppend(t, l, a, e).Last
		mustAppend(t, l, a, e) // looked up
	}
	for i, at := range places {
		excluded := fmt.Sprint("acme.t", i)
		for _, id := range []string{"", "named"} {
			if _, err := l.Append(t.Context(), a, log.Since(at-1, excluded), note(id, "x")); !errors.Is(err, log.ErrConflict) {
				t.Fatalf("id %q after excluded type %s at %v: got %v, want ErrConflict", id, excluded, at, err)
			}
			if id != "" {
				id += excluded
			}
			if _, err := l.Append(t.Context(), a, log.Since(at, excluded), note(id, "x")); err != nil {
				t.Fatalf("id %q, expecting the record of the excluded type %s: %v", id, excluded, err)
			}
		}
	}
}
