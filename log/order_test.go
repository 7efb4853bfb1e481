package log_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// steps is a Sync whose calls a test releases one by one.
type steps struct {
	began chan struct{} // receives when a sync begins
	next  chan struct{} // a send ends the sync
}

func (s *steps) sync(string) error {
	s.began <- struct{}{}
	<-s.next
	return nil
}

func (s *steps) mustBegin(t *testing.T, what string) {
	t.Helper()
	select {
	case <-s.began:
	case <-time.After(testkit.Patience(time.Minute)):
		t.Fatalf("no sync began %s, within 10s", what)
	}
}

// C01: a sync covers exactly what was stored before it began: an append stored while it runs waits for the next one,
// and no reader sees it.
func TestSyncCoversWhatWasStoredBeforeIt(t *testing.T) {
	s := &steps{began: make(chan struct{}), next: make(chan struct{})}
	opened := make(chan *log.Log)
	go func() {
		l, err := log.OpenOn(context.WithoutCancel(t.Context()), memlog.New(memlog.Config{}), log.Config{Host: log.Host{Sync: s.sync}, AckWait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	s.mustBegin(t, "when the log was opened")
	s.next <- struct{}{}
	l := <-opened
	closed := make(chan error)
	defer func() {
		go func() { closed <- l.Close() }()
		for {
			select {
			case <-s.began:
				s.next <- struct{}{}
			case err := <-closed:
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	}()
	sub := events.Session("", "s")
	first := l.AppendAsync(t.Context(), sub, log.Any, someTurn("e1"))
	s.mustBegin(t, "for the first append")
	second := l.AppendAsync(t.Context(), sub, log.Any, someTurn("e2"))
	for head := events.Offset(0); head < 2; {
		var err error
		if head, err = l.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.next <- struct{}{}
	if ack, err := first.Wait(t.Context()); err != nil || ack.Durability != log.Durable {
		t.Fatalf("first append: got %+v, %v, want a durable ack", ack, err)
	}
	s.mustBegin(t, "for what was stored while the first one ran")
	select {
	case <-second.Done():
		t.Error("the second append was acknowledged after a sync that began before it was stored")
	default:
	}
	if at, err := l.Durable(t.Context()); err != nil || at != 1 {
		t.Errorf("watermark is %v, %v, want 1", at, err)
	}
	if n := read(t, l, events.Range{}); n != 1 {
		t.Errorf("a read returned %d records, want the durable one", n)
	}
	s.next <- struct{}{}
	if ack, err := second.Wait(t.Context()); err != nil || ack.Last != 2 {
		t.Fatalf("second append: got %+v, %v, want offset 2", ack, err)
	}
}

// gate is a Backend that delays publications until a test opens it.
type gate struct {
	shared
	entered chan struct{} // receives when a publication waits
	open    chan struct{}
}

func (g *gate) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	<-g.open
	return g.shared.Publish(ctx, p)
}

// A11: if an append fails, all appends that were queued behind it are aborted, and none of their events is written.
func TestAllBehindAFailureAreAborted(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	g := &gate{shared{mem}, make(chan struct{}, 1), make(chan struct{})}
	l := logtest.OpenOn(t, g, log.Config{})
	sub := events.Session("", "s")
	pending := []*log.Pending{l.AppendAsync(t.Context(), sub, log.Any, note("0", "x")), l.AppendAsync(t.Context(), sub, log.At(77), note("1", "x"))}
	<-g.entered // the first append is being stored, so the others wait in the queue
	for i := range 5 {
		pending = append(pending, l.AppendAsync(t.Context(), sub, log.Any, note(strconv.Itoa(i+2), "x")))
	}
	aside := l.AppendAsync(t.Context(), events.Session("", "aside"), log.Any, note("", "x"))
	close(g.open)
	for i, p := range pending {
		_, err := p.Wait(t.Context())
		switch {
		case i == 0 && err != nil, i == 1 && !errors.Is(err, log.ErrConflict), i > 1 && !errors.Is(err, log.ErrAborted):
			t.Errorf("append %d: got %v, want success, ErrConflict, then ErrAborted for all others", i, err)
		}
	}
	if _, err := aside.Wait(t.Context()); err != nil {
		t.Errorf("append to another subject: %v", err)
	}
	if n := read(t, l, events.Range{Subject: sub}); n != 1 {
		t.Errorf("the subject has %d records, want the one stored before the failure", n)
	}
	mustAppend(t, l, sub, note("7", "x"))
}

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A04: an id that was young when its append was called and grew old in the queue is looked up: the backend does not
// recognise it any more.
func TestIDThatGrowsOldInTheQueue(t *testing.T) {
	c := &clock{now: time.Now()}
	mem := shared{memlog.New(memlog.Config{Now: c.Now})}
	one := logtest.OpenOn(t, mem, log.Config{Now: c.Now})
	sub, id := events.Session("", "s"), uuid.Must(uuid.NewV7()).String()
	c.move(time.Second)
	first := mustAppend(t, one, sub, note(id, "x"))
	g := &gate{mem, make(chan struct{}, 1), make(chan struct{})}
	two := logtest.OpenOn(t, g, log.Config{Now: c.Now})
	ahead := two.AppendAsync(t.Context(), sub, log.Any, note("", "ahead"))
	<-g.entered
	again := two.AppendAsync(t.Context(), sub, log.Any, note(id, "x"))
	c.move(time.Hour)
	close(g.open)
	if _, err := ahead.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ack, err := again.Wait(t.Context()); err != nil || !ack.Duplicate || ack.Last != first.Last {
		t.Errorf("repeated id: got %+v, %v, want a duplicate of %+v", ack, err, first)
	}
	if n := read(t, one, events.Range{Subject: sub}); n != 2 {
		t.Errorf("the subject has %d records, want 2", n)
	}
}

// A06: an append with the identity of a stored event and another dataref is refused.
func TestSameIdentityWithAnotherReference(t *testing.T) {
	l := logtest.Open(t)
	sub := events.Session("", "s")
	large := func(ref string) events.Event {
		e := note("large", "x")
		e.Data = nil
		return e.WithExtension(events.ExtDataRef, "urn:tally:blob:"+ref)
	}
	a, b := "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
	mustAppend(t, l, sub, large(a))
	if ack := mustAppend(t, l, sub, large(a)); !ack.Duplicate {
		t.Errorf("repeated append: got %+v, want a duplicate", ack)
	}
	_, err := l.Append(t.Context(), sub, log.Any, large(b))
	if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field != "id" {
		t.Errorf("same id, other reference: got %v, want an *InvalidError of id", err)
	}
}

// A10: after a missing answer it is unknown whether the event is stored: its id is looked up, however complete the list
// of ids was.
func TestUnknownAnswerMakesIDsDoubtful(t *testing.T) {
	c := &clock{now: time.Now()}
	lose := logtest.None
	mem := shared{memlog.New(memlog.Config{Now: c.Now})}
	l := logtest.OpenOn(t, &logtest.Faulty{Backend: mem, Next: func() logtest.Fault { return lose }}, log.Config{Host: log.Host{Owner: true}, Now: c.Now})
	sub := events.Session("", "s")
	mustAppend(t, l, sub, note("a", "x"))
	mustAppend(t, l, sub, note("b", "x")) // now the index has the ids of the subject
	lose = logtest.AckLost
	if _, err := l.Append(t.Context(), sub, log.Any, note("c", "x")); !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("append without an answer: got %v, want ErrUnknown", err)
	}
	lose = logtest.None
	c.move(time.Hour)                    // the backend remembers nothing
	mustAppend(t, l, sub, note("", "y")) // its id needs no look-up, so earlier records are not read
	if ack, err := l.Append(t.Context(), sub, log.Any, note("c", "x")); err != nil || !ack.Duplicate || ack.Last != 3 {
		t.Errorf("repeated append: got %+v, %v, want a duplicate at 3", ack, err)
	}
	if n := read(t, l, events.Range{Subject: sub}); n != 4 {
		t.Errorf("the subject has %d records, want 4", n)
	}
}

// leaky is a Backend whose live cursors skip one message.
type leaky struct {
	shared
	hole events.Offset
}

func (b leaky) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	cur, err := b.shared.Scan(ctx, q)
	if q.Live {
		cur = &leakyCursor{cur, b.hole}
	}
	return cur, err
}

type leakyCursor struct {
	log.Cursor
	hole events.Offset
}

func (c *leakyCursor) Next(ctx context.Context) (log.Message, error) {
	m, err := c.Cursor.Next(ctx)
	if err == nil && m.Offset == c.hole {
		return c.Cursor.Next(ctx)
	}
	return m, err
}

// B11: a live follow of the whole log yields a record that its cursor skipped.
func TestFollowNoticesAGap(t *testing.T) {
	mem := shared{memlog.New(memlog.Config{})}
	writer, l := logtest.OpenOn(t, mem, log.Config{}), logtest.OpenOn(t, leaky{mem, 3}, log.Config{})
	ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
	defer stop()
	sub := events.Session("", "s")
	mustAppend(t, writer, sub, note("", "1"))
	var got []events.Offset
	for rec, err := range l.Follow(ctx, events.Range{Upto: 4}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.Offset)
		if rec.Offset == 1 { // later records come from the live cursor
			for range 3 {
				mustAppend(t, writer, sub, note("", "x"))
			}
		}
	}
	if !slices.Equal(got, []events.Offset{1, 2, 3, 4}) {
		t.Errorf("Follow yielded %v, want 1 to 4", got)
	}
}

// B04: damage is yielded at its offset, also in a read of one subject that is longer than the window of the count.
func TestDamageStandsInItsPlace(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	l := logtest.OpenOn(t, mem, log.Config{})
	sub := events.Session("", "s")
	const n, damaged = 5000, 700
	for i := range n / 500 {
		evs := make([]events.Event, 500)
		for j := range evs {
			evs[j] = note(strconv.Itoa(i*500+j), "x")
		}
		mustAppend(t, l, sub, evs...)
	}
	mem.Damage(damaged)
	at := events.Offset(0)
	for rec, err := range l.Read(t.Context(), events.Range{Subject: sub}) {
		at++
		damage, ok := errors.AsType[*events.DamageError](err)
		if ok != (at == damaged) || ok && damage.Offset != at || !ok && (err != nil || rec.Offset != at) {
			t.Fatalf("item %v: got offset %v, error %v", at, rec.Offset, err)
		}
	}
	if at != n {
		t.Errorf("the read yielded %v items, want %d", at, n)
	}
}
