package log_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// cut is a log in memory that begins segments: it does not recognise ids of earlier ones.
type cut struct {
	*memlog.Backend
	n     int
	begun time.Time
}

func (c *cut) Segment() (int, time.Time) { return c.n, c.begun }

func (c *cut) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if p.Segment != 0 && p.Segment != c.n {
		return log.Receipt{}, log.ErrBusy
	}
	p.Writes = slices.Clone(p.Writes)
	for i, w := range p.Writes {
		p.Writes[i].Messages = slices.Clone(w.Messages)
		for j := range w.Messages {
			p.Writes[i].Messages[j].ID = fmt.Sprint(c.n, " ", w.Messages[j].ID)
		}
	}
	return c.Backend.Publish(ctx, p)
}

// madeAt returns a UUIDv7 of a time.
func madeAt(at time.Time, n int) string {
	ms := at.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7000-8000-%012x", ms>>16, ms&0xffff, uint64(n)&(1<<48-1))
}

// An event that is appended again is recognised, whatever the producer's clock said when it made the id, whenever a
// segment began in between, and whenever it comes again.
func TestIdentitiesAcrossSegments(t *testing.T) {
	t.Run("net I1 an id that is older than the segment is recognised", func(t *testing.T) {
		seconds := func(list ...int) (all []time.Duration) {
			for _, s := range list {
				all = append(all, time.Duration(s)*time.Second)
			}
			return all
		}
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		clock := func() time.Time { return now }
		c := &cut{Backend: memlog.New(memlog.Config{Now: clock}), n: 1}
		l := logtest.OpenOn(t, c, log.Config{Now: clock})
		n := 0
		for _, ahead := range seconds(-61, -31, -30, -29, -1, 0, 1, 29, 30) { // of the producer's clock
			for _, rolled := range seconds(0, 1, 2, 29, 30, 31) { // after the event was stored
				for _, later := range seconds(0, 1, 28, 29, 30, 31, 60, 61, 120) { // the event comes again
					for _, several := range []bool{false, true} {
						n++
						sub, evs := events.Session("", fmt.Sprint(n)), []events.Event{note(madeAt(now.Add(ahead), n), "x")}
						if several {
							evs = append(evs, note(madeAt(now.Add(ahead), -n), "x"))
						}
						first := mustAppend(t, l, sub, evs...)
						now = now.Add(rolled)
						c.n, c.begun = c.n+1, now
						now = now.Add(later)
						again, err := l.Append(t.Context(), sub, log.Any, evs...)
						if err != nil || !again.Duplicate || again.First != first.First || again.Last != first.Last {
							t.Errorf("%d events by a clock that is %v ahead, a segment %v later, and again after %v: got %+v, %v, want %+v again",
								len(evs), ahead, rolled, later, again, err, first)
						}
						now = now.Add(3 * time.Minute)
					}
				}
			}
		}
	})
}

// between is a backend that stops before each publication, when everything is decided.
type between struct {
	log.Backend
	opened  time.Time
	reached func(point string)
}

// Segment implements log.Segmented. A segment that was begun before the backend was opened is an old one.
func (b between) Segment() (n int, begun time.Time) {
	if n, begun = b.Backend.(log.Segmented).Segment(); begun.Before(b.opened) {
		begun = time.Time{}
	}
	return n, begun
}

func (b between) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	b.reached("an append is decided")
	return b.Backend.Publish(ctx, p)
}

// foreign is a log on a server that others write to as well.
func foreign(t *testing.T, s *server.Server, reached func(string)) (*log.Log, log.Backend) {
	t.Helper()
	b, err := log.NewJetStream(t.Context(), mustDial(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return logtest.OpenOn(t, between{b, time.Now(), reached}, log.Config{}), b
}

// decision is an append that is decided while another process appends, with what must become of it.
type decision struct {
	other  string                         // what the other process appends
	by     string                         // the name of the expectation
	expect func(events.Offset) log.Expect // behind a first event
	want   string
}

// Two processes write to a server that others run. What one of them has decided is decided again if the other begins a
// segment before it is stored.
func TestDecidedBeforeASegment(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	any := func(events.Offset) log.Expect { return log.Any }
	since := func(first events.Offset) log.Expect { return log.Since(first, "com.example.note") }
	for i, c := range []decision{
		{"nothing", "any", any, "stored"},
		{"nothing", "at", log.At, "stored"},
		{"nothing", "since", since, "stored"},
		{"the same", "any", any, "recognised"},
		{"the same", "at", log.At, "recognised"},
		{"the same", "since", since, "recognised"},
		{"another event", "any", any, "stored"},
		{"another event", "at", log.At, "refused"},
		{"another event", "since", since, "refused"},
	} {
		for _, knows := range []bool{false, true} {
			t.Run(fmt.Sprintf("net I2 %s, the other appends %s, and the new segment is known %v", c.by, c.other, knows), func(t *testing.T) {
				for n := 1; n <= 2; n++ {
					if testkit.Plays(i+n, 2) {
						decidedBefore(t, s, fmt.Sprint(i, knows, n), n, false, c, knows)
					}
				}
				decidedBefore(t, s, fmt.Sprint(i, knows, "apart"), 2, true, c, knows)
			})
		}
	}
	t.Run("net I2 a publication stays as its caller made it", func(t *testing.T) {
		nc := mustDial(t, s)
		b, err := log.NewJetStream(t.Context(), nc)
		if err != nil {
			t.Fatal(err)
		}
		sub := events.Session("", "kept")
		out := func(id string) []log.Outgoing {
			e := note(id, "x")
			e.Subject = sub
			e.Time = time.Unix(1, 0)
			return []log.Outgoing{{ID: e.MsgID(), Header: events.AppendHeader(nil, e), Data: e.Data}}
		}
		first, err := b.Publish(t.Context(), log.Publication{Writes: []log.Write{{Subject: sub.NATS(), Messages: out("1")}}})
		if err == nil {
			err = log.Roll(t.Context(), b)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := log.Publication{Writes: []log.Write{{Subject: sub.NATS(), Messages: out("2"), Expect: log.Exactly{Set: true, At: first.Last}}}}
		for _, want := range []error{nil, log.ErrConflict} {
			if _, err := b.Publish(t.Context(), p); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if got := p.Writes[0].Expect; got != (log.Exactly{Set: true, At: first.Last}) {
				t.Errorf("the expectation became %+v", got)
			}
		}
	})
	t.Run("net I2 a list counts the records of a subject in all segments", func(t *testing.T) {
		l, streams := foreign(t, s, func(string) {})
		sub := events.Document("", "counted", "a")
		for range 3 {
			mustAppend(t, l, sub, note("", "x"))
			if err := log.Roll(t.Context(), streams); err != nil {
				t.Fatal(err)
			}
		}
		var got []log.SubjectInfo
		for info, err := range l.Subjects(t.Context(), "", "counted") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info)
		}
		if len(got) != 1 || got[0] != (log.SubjectInfo{Subject: sub, Count: 3}) {
			t.Errorf("got %+v, want 3 records of %v", got, sub)
		}
	})
}

// decidedBefore appends events by a process, while another one appends and begins a segment before they are stored.
func decidedBefore(t *testing.T, s *server.Server, name string, n int, apart bool, c decision, knows bool) {
	other, streams := foreign(t, s, func(string) {})
	var act func()
	first := events.Offset(0)
	l, _ := foreign(t, s, func(string) {
		if do := act; do != nil {
			act = nil
			do()
		}
	})
	sub, second := events.Session("", name), events.Session("", name+" too")
	first = mustAppend(t, l, sub, note("", "x")).Last
	evs := []events.Event{note(madeAt(time.Now(), 1), "x")}
	if n == 1 && c.other != "the same" {
		evs[0].ID = "" // never sent before
	}
	if n > 1 {
		evs = append(evs, note(madeAt(time.Now(), 2), "x"))
	}
	again := func(l *log.Log, expect log.Expect) (ack log.Ack, err error) {
		if !apart {
			return l.Append(t.Context(), sub, expect, evs...)
		}
		acks, err := l.AppendAll(t.Context(), log.Part{Subject: sub, Expect: expect, Events: evs[:1]}, log.Part{Subject: second, Events: evs[1:]})
		if err == nil {
			ack = acks[0]
		}
		return ack, err
	}
	var others log.Ack
	act = func() {
		var err error
		switch c.other {
		case "the same":
			others, err = again(other, log.Any)
		case "another event":
			others, err = other.Append(t.Context(), sub, log.Any, note("", "x"))
		}
		if err == nil {
			err = log.Roll(t.Context(), streams)
		}
		if err == nil && knows {
			_, err = l.Head(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	ack, err := again(l, c.expect(first))
	switch {
	case c.want == "refused":
		if !errors.Is(err, log.ErrConflict) {
			t.Errorf("got %+v, %v, want a conflict", ack, err)
		}
	case err != nil || ack.Duplicate != (c.want == "recognised") || ack.Duplicate && ack.First != others.First:
		t.Errorf("got %+v, %v, want it %s; the other got %+v", ack, err, c.want, others)
	}
	stored := make(map[string]int)
	for rec, err := range l.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if stored[rec.Subject.ID+rec.ID]++; stored[rec.Subject.ID+rec.ID] > 1 {
			t.Errorf("%s is stored again, at %v", rec.ID, rec.Offset)
		}
	}
}
