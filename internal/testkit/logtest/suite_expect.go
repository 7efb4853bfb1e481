package logtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

func atExpectsTheExactOffset(t *testing.T, l *log.Log) {
	s := session("s")
	mustFill(t, l, 2, session("other"))
	mustAppend(t, l, s, log.At(0), created(""))
	mustBe(t, "second", mustAppend(t, l, s, log.At(3), turn("", "x")).Last, 4)
	for want, evs := range map[events.Offset][]events.Event{
		0: {turn("", "x")},
		3: {turn("", "x"), turn("", "y")},
		9: {turn("old", "x")},
	} {
		_, err := l.Append(t.Context(), s, log.At(want), evs...)
		mustBeConflict(t, err, s, want, 4)
	}
	mustBe(t, "head", mustHead(t, l), 4)
}

func retryAfterAtIsNoConflict(t *testing.T, l *log.Log) {
	s := session("s")
	for i, x := range []log.Expect{log.At(0), log.At(2), log.Since(4, events.TypeTurnAppended)} {
		evs := []events.Event{l.Stamp(turn("", "x")), l.Stamp(turn("", "y"))}
		first := mustAppend(t, l, s, x, evs...)
		mustBe(t, "first", first.First, events.Offset(2*i+1))
		first.Duplicate = true
		mustBe(t, "retry as the last one", mustAppend(t, l, s, x, evs...), first)
	}
	once := turn("once", "x")
	first := mustAppend(t, l, s, log.At(6), once)
	mustFill(t, l, 5, s)
	first.Duplicate = true
	for _, x := range []log.Expect{log.At(6), log.At(0), log.At(12), log.At(99), log.Since(6, events.TypeTurnAppended), log.Any} {
		mustBe(t, "retry, expecting "+x.String(), mustAppend(t, l, s, x, once), first)
	}
	mustBe(t, "head", mustHead(t, l), 12)
}

func onlyOneWriterWins(t *testing.T, l *log.Log) {
	s := session("s")
	const writers = 8
	for round := range 5 {
		last := events.Offset(round)
		var wg sync.WaitGroup
		won := make(chan int, writers)
		for w := range writers {
			wg.Go(func() {
				_, err := l.Append(t.Context(), s, log.At(last), turn("", strconv.Itoa(w)))
				switch {
				case err == nil:
					won <- w
				case !errors.Is(err, log.ErrConflict):
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		wg.Wait()
		mustBe(t, "winners", len(won), 1)
	}
	mustBe(t, "head", mustHead(t, l), 5)
}

func sinceIgnoresOtherTypes(t *testing.T, l *log.Log) {
	s := session("s")
	const typ, noise = "com.example.decided", "com.example.noise"
	mustAppend(t, l, s, log.Since(0, typ), foreign("", typ, "first"))
	mustAppend(t, l, s, log.Any, foreign("", noise, "1"), foreign("", noise, "2"))
	mustAppend(t, l, session("other"), log.Any, foreign("", typ, "elsewhere"))
	mustBe(t, "after noise", mustAppend(t, l, s, log.Since(1, typ), foreign("", typ, "second")).Last, 5)
	_, err := l.Append(t.Context(), s, log.Since(1, typ, "com.example.unused"), foreign("", typ, "third"))
	mustBeConflict(t, err, s, 1, 5)
	_, err = l.Append(t.Context(), s, log.Since(1, typ), foreign("old id", typ, "third"))
	if !errors.Is(err, log.ErrConflict) {
		t.Fatalf("with an old id: got %v, want a conflict", err)
	}
	mustBe(t, "at the head", mustAppend(t, l, s, log.Since(5, typ), foreign("", typ, "third")).Last, 6)
	mustBe(t, "no types", mustAppend(t, l, s, log.Since(0), foreign("", typ, "fourth")).Last, 7)
}

// sinceDoesNotStarve decides on a session to which others write all the time.
func sinceDoesNotStarve(t *testing.T, l *log.Log) {
	s := session("s")
	const typ = "com.example.decided"
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := l.Append(ctx, s, log.Any, turn("", "noise"))
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	at := events.Offset(0)
	for i := range 20 {
		at = mustAppend(t, l, s, log.Since(at, typ), foreign("", typ, strconv.Itoa(i))).Last
	}
	stop()
	wg.Wait()
}

func guardedTypesNeedExpectation(t *testing.T, l *log.Log) {
	s := session("s")
	first := created("first")
	ack := mustAppend(t, l, s, log.Any, first)
	ack.Duplicate = true
	mustBe(t, "retry", mustAppend(t, l, s, log.Any, first), ack)
	for _, e := range []events.Event{created(""), created("second")} {
		_, err := l.Append(t.Context(), s, log.Any, e)
		mustBeInvalid(t, err, "expect")
	}
	_, err := l.Append(t.Context(), s, log.Any, turn("", "x"), created(""))
	mustBeInvalid(t, err, "expect")
	mustAppend(t, l, s, log.At(1), created(""))
	mustAppend(t, l, s, log.Since(2, events.TypeSessionCreated), created(""))
	mustBe(t, "head", mustHead(t, l), 3)
}

func orderIsCallOrder(t *testing.T, l *log.Log) {
	subs := []events.Subject{session("a"), session("b"), session("c")}
	const each = 60
	var pending []*log.Pending
	for i := range each {
		for _, s := range subs {
			pending = append(pending, l.AppendAsync(t.Context(), s, log.Any, turn(idFor(i), strconv.Itoa(i))))
		}
	}
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
	}
	for _, s := range subs {
		recs := mustRead(t, l, events.Range{Subject: s})
		mustBe(t, "records", len(recs), each)
		for i, rec := range recs {
			if want := turn("", strconv.Itoa(i)).Data; string(rec.Data) != string(want) {
				t.Fatalf("%v: number %d is %s, want %s", s, i, rec.Data, want)
			}
		}
	}
}

// idFor mixes ids that need a look-up with ids that do not.
func idFor(i int) string {
	if i%3 == 0 {
		return fmt.Sprint("id:", i)
	}
	return ""
}

func abortAfterFailure(t *testing.T, l *log.Log) {
	s := session("s")
	var pending []*log.Pending
	first := turns(500) // which take a while
	pending = append(pending, l.AppendAsync(t.Context(), s, log.Any, first...))
	pending = append(pending, l.AppendAsync(t.Context(), s, log.At(77), turn("", "1")))
	for i := range 5 {
		pending = append(pending, l.AppendAsync(t.Context(), s, log.Any, turn("", strconv.Itoa(i+2))))
	}
	behind := true // all of them were called before the failure
	select {
	case <-pending[1].Done():
		behind = false
	default:
	}
	aside := l.AppendAsync(t.Context(), session("aside"), log.Any, turn("", "aside"))
	if _, err := pending[0].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pending[1].Wait(t.Context()); !errors.Is(err, log.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	written := 0
	for _, p := range pending[2:] {
		_, err := p.Wait(t.Context())
		switch {
		case err == nil && !behind: // called after the failure: then so were all behind it
			written++
		case !errors.Is(err, log.ErrAborted) || written > 0:
			t.Fatalf("after the failure, with %d written: %v", written, err)
		}
	}
	if _, err := aside.Wait(t.Context()); err != nil {
		t.Fatalf("another subject: %v", err)
	}
	mustAppend(t, l, s, log.Any, turn("", "new"))
	mustBe(t, "records", len(mustRead(t, l, events.Range{Subject: s})), len(first)+written+1)
	if _, err := l.Append(t.Context(), s, log.At(77), turn("", "x")); !errors.Is(err, log.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	mustAppend(t, l, s, log.Any, turn("", "a failed Append aborts nothing"))
}

// writersShareASubject has several writers append the same list of events with ids
// that the server does not remember.
func writersShareASubject(t *testing.T, l *log.Log) {
	s := session("s")
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := l.Append(t.Context(), s, log.Any, turn(fmt.Sprint("line:", i), "x"), turn(fmt.Sprint("writer:", w, i), "x")); err != nil {
					if _, partial := errors.AsType[*log.PartialError](err); !partial {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	mustHaveEachOnce(t, l, s, 2*each)
}
