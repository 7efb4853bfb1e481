package log_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// unaware is a backend that recognises no id.
type unaware struct{ shared }

func (b unaware) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	list := make([]log.Write, len(p.Writes))
	for i, w := range p.Writes {
		list[i] = log.Write{Subject: w.Subject, Expect: w.Expect}
		for _, m := range w.Messages {
			list[i].Messages = append(list[i].Messages, log.Outgoing{Header: m.Header, Data: m.Data})
		}
	}
	return b.shared.Publish(ctx, log.Publication{Writes: list, Segment: p.Segment})
}

// youngStep is a step of a history of young ids.
type youngStep struct {
	wait   time.Duration // before the step
	reopen bool          // another Log continues
	again  int           // the event that is appended again; 0: a new one
	beside int           // new events of the same append, ahead of it
	sub    int
	ahead  time.Duration // the clock of a new event's producer
	expect log.Expect
}

// An owner stores each identity once whenever it is repeated, over processes, although the backend recognises no id.
func TestOwnerRecognisesYoungIDs(t *testing.T) {
	testkit.NotUnderRace(t) // nothing runs beside it
	step := rapid.Custom(func(t *rapid.T) youngStep {
		of := func(list ...time.Duration) *rapid.Generator[time.Duration] { return rapid.SampledFrom(list) }
		return youngStep{
			wait:   of(0, 0, time.Millisecond, time.Second, 29*time.Second, 31*time.Second, slack-time.Second, slack, 2*time.Minute-time.Millisecond, 2*time.Minute).Draw(t, "wait"),
			reopen: rapid.IntRange(0, 5).Draw(t, "reopen") == 0,
			again:  max(0, rapid.IntRange(-3, 5).Draw(t, "again")),
			beside: max(0, rapid.IntRange(-4, 2).Draw(t, "beside")),
			sub:    rapid.IntRange(0, 1).Draw(t, "subject"),
			ahead:  of(0, 0, time.Second, 30*time.Second, slack-time.Second, slack, -time.Second, -29*time.Second).Draw(t, "ahead"),
			expect: rapid.SampledFrom([]log.Expect{log.Any, log.Any, log.Since(0, "com.example.never")}).Draw(t, "expect"),
		}
	})
	for _, wait := range []time.Duration{slack, 2*time.Minute - time.Millisecond} { // the fastest clock, from the first moment to the last
		if err := inBubble(t, func() error {
			return playYoung(storing[2], []youngStep{{ahead: slack}, {wait: wait, reopen: true, again: 1}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		host, steps := storing[2], rapid.SliceOfN(step, 1, 30).Draw(rt, "steps")
		if rapid.Bool().Draw(rt, "unsynced") {
			host.Sync = nil
		}
		if err := inBubble(t, func() error { return playYoung(host, steps) }); err != nil {
			rt.Fatal(err)
		}
	})
}

func playYoung(host log.Host, steps []youngStep) (err error) {
	ctx, mem := context.Background(), unaware{shared{memlog.New(memlog.Config{})}}
	time.Sleep(time.Hour)
	open := func() (*log.Log, error) { return log.OpenOn(ctx, mem, log.Config{Host: host}) }
	l, err := open()
	if err != nil {
		return err
	}
	defer func() { l.Close() }()
	var stored []events.Event // in the order of their offsets
	for i, s := range steps {
		time.Sleep(s.wait)
		if s.reopen {
			if err := l.Close(); err != nil {
				return err
			}
			if l, err = open(); err != nil {
				return err
			}
		}
		e, isThere := note(idAt(time.Now().Add(s.ahead), i), fmt.Sprint(i)), s.again > 0 && s.again <= len(stored)
		e.Subject = events.Session("", fmt.Sprint(s.sub))
		want := log.Ack{First: events.Offset(len(stored) + 1)}
		if isThere {
			want = log.Ack{First: events.Offset(len(stored) - s.again + 1), Duplicate: true}
			e = stored[want.First-1]
		}
		var list []events.Event
		for n := range s.beside {
			beside := note(idAt(time.Now(), 1000*(i+1)+n), "beside")
			beside.Subject = e.Subject
			list = append(list, beside)
		}
		list = append(list, e)
		got, err := l.Append(ctx, e.Subject, s.expect, list...)
		if some, is := errors.AsType[*log.PartialError](err); isThere && s.beside > 0 {
			if !is || len(some.Have) != 1 || some.Have[0].Offset != want.First {
				return fmt.Errorf("step %d, %+v: got %+v, %v, want only event %d at %v", i, s, got, err, s.beside, want.First)
			}
			continue
		}
		if !isThere {
			stored = append(stored, list...)
		}
		if err != nil || got.First != want.First || got.Duplicate != want.Duplicate {
			return fmt.Errorf("step %d, %+v: got %+v, %v, want %+v", i, s, got, err, want)
		}
	}
	return nil
}

// An owner lets the server remember ids for a minute, also in a store of an earlier version, and stores an identity once
// even if the server has forgotten it. Others leave the window as it is.
func TestWindowOfAnOwner(t *testing.T) {
	dir := t.TempDir()
	s := mustServe(t, dir, nil)
	window := func() time.Duration {
		t.Helper()
		js, err := jetstream.New(mustDial(t, s))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), "TALLY_1")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config.Duplicates
	}
	sub, owner := events.Session("", "s"), log.Config{Host: log.Host{Owner: true}}
	first, second := note(idAt(time.Now(), 1), "first"), note(idAt(time.Now(), 2), "second")
	again := func(l *log.Log, e events.Event, at events.Offset) {
		t.Helper()
		if ack, err := l.Append(t.Context(), sub, log.Any, e); err != nil || !ack.Duplicate || ack.Last != at {
			t.Errorf("%s again: got %+v, %v, want a duplicate at %v", e.Data, ack, err, at)
		}
	}
	mustAppend(t, mustOpen(t, mustDial(t, s), log.Config{}), sub, first)
	if got := window(); got != 2*time.Minute {
		t.Errorf("the window of a store without owner is %v", got)
	}
	l := mustOpen(t, mustDial(t, s), owner)
	if got := window(); got != time.Minute {
		t.Errorf("the window of an owner's store is %v", got)
	}
	mustAppend(t, l, sub, second)
	again(mustOpen(t, mustDial(t, s), log.Config{}), first, 1)
	if got := window(); got != time.Minute {
		t.Errorf("the window is %v after another process opened the store", got)
	}
	mustForget(t, s)
	again(l, first, 1)
	again(l, second, 2)
}
