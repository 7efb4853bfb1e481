package log_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// idAt returns an id that a producer makes at a time by its clock.
func idAt(at time.Time, n int) string {
	id := uuid.UUID{6: 0x70, 8: 0x80}
	binary.BigEndian.PutUint64(id[8:], 1<<63|uint64(n))
	id[0], id[1] = byte(at.UnixMilli()>>40), byte(at.UnixMilli()>>32)
	binary.BigEndian.PutUint32(id[2:], uint32(at.UnixMilli()))
	return id.String()
}

// slack is how far a producer's clock may be ahead of the log's.
const slack = 90 * time.Second

// A unit is appended again, by producers whose clocks differ, at every time that decides how it is recognised.
func TestUnitAgain(t *testing.T) {
	besides := []time.Duration{-time.Second, -time.Millisecond, 0, 0, time.Millisecond, time.Second}
	t.Run("net U5 the same unit again is a duplicate at the bound", func(t *testing.T) {
		for i, host := range storing {
			for _, size := range []int{1, large} {
				for n, beside := range besides { // when the id stops being young, and the backend forgets it
					ahead := [][]time.Duration{{slack, slack}, {slack}}
					a := again{host: host, begin: time.Hour, size: size, ahead: ahead, expect: make([]log.Expect, 2), noise: make([]bool, 2), after: 2*time.Minute + beside, queued: time.Duration(n%2) * 5 * time.Second}
					if err := inBubble(t, a.play); err != nil {
						t.Errorf("way %d, %d bytes, after %v: %v", i, size, a.after, err)
					}
				}
			}
		}
	})
	t.Run("net U5 the same unit again is a duplicate", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			a := again{host: storing[rapid.IntRange(0, 2).Draw(rt, "storing")]}
			a.begin = time.Hour + rapid.SampledFrom([]time.Duration{0, 0, 1234567}).Draw(rt, "begin") // ids have milliseconds
			clocks := rapid.SampledFrom([]time.Duration{slack, slack, slack, slack - time.Millisecond, slack - time.Second, 30 * time.Second, 0, -30 * time.Second, -time.Hour})
			expects := rapid.SampledFrom([]log.Expect{log.Any, log.At(0), log.Since(0, "com.example.never")})
			// Often all events are alike: if one of them is looked up, the others are too.
			alike, ahead, expect := rapid.Bool().Draw(rt, "alike"), clocks.Draw(rt, "ahead"), log.Any
			parts := rapid.IntRange(2, 3).Draw(rt, "parts")
			a.size = rapid.SampledFrom([]int{1, 1, large}).Draw(rt, "size")
			for range parts {
				var list []time.Duration
				for range rapid.IntRange(1, 2).Draw(rt, "events") {
					if list = append(list, ahead); !alike {
						ahead, expect = clocks.Draw(rt, "ahead"), expects.Draw(rt, "expect")
					}
				}
				a.ahead, a.expect = append(a.ahead, list), append(a.expect, expect)
				a.noise = append(a.noise, rapid.Bool().Draw(rt, "noise"))
			}
			// It is repeated when its first id is no longer young, when the backend forgets it, and when its id is no longer in the future.
			edge := rapid.SampledFrom([]time.Duration{0, max(0, a.ahead[0][0]), max(0, a.ahead[0][0]) + 30*time.Second, 2 * time.Minute, time.Hour}).Draw(rt, "edge")
			a.after = max(0, edge+rapid.SampledFrom(besides).Draw(rt, "beside"))
			a.queued = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 40 * time.Second}).Draw(rt, "queued")
			a.guard = rapid.SampledFrom([]int{none, none, front, back}).Draw(rt, "guard")
			a.reopen = rapid.Bool().Draw(rt, "reopen")
			if err := inBubble(t, a.play); err != nil {
				rt.Fatal(err)
			}
		})
	})
}

// again is a unit that is appended twice.
type again struct {
	host   log.Host
	begin  time.Duration
	size   int
	ahead  [][]time.Duration // for each event of each part, how far the producer's clock is ahead
	expect []log.Expect      // of each part
	noise  []bool            // something is appended to the part's subject in between
	after  time.Duration     // between the two
	queued time.Duration     // at the end of which it waits behind another append
	guard  int               // where a guard is, of a subject that has changed when it is appended again
	reopen bool              // another log appends it again
}

const (
	none = iota
	front
	back
)

func (a again) play() error {
	ctx, mem := context.Background(), shared{memlog.New(memlog.Config{})}
	time.Sleep(a.begin)
	g := &logtest.Gate{Backend: mem}
	open := func() (*log.Log, error) {
		return log.OpenOn(ctx, g, log.Config{Host: a.host, AckWait: time.Hour})
	}
	l, err := open()
	if err != nil {
		return err
	}
	defer func() { l.Close() }()
	var parts []log.Part
	n := 0
	for i, ahead := range a.ahead {
		p := log.Part{Subject: events.Session("", fmt.Sprint(i)), Expect: a.expect[i]}
		for _, d := range ahead {
			n++
			e := note(idAt(time.Now().Add(d), n), "x")
			e.Data = fmt.Appendf(nil, "%*s", a.size, "x")
			p.Events = append(p.Events, e)
		}
		parts = append(parts, p)
	}
	guarded := events.Session("", "guarded")
	all := slices.Clone(parts)
	if guard := (log.Part{Subject: guarded, Expect: log.At(0)}); a.guard == front {
		all = slices.Insert(all, 0, guard)
	} else if a.guard == back {
		all = append(all, guard)
	}
	first, err := l.AppendAll(ctx, all...)
	if err != nil {
		return err
	}
	if _, err := l.Append(ctx, guarded, log.Any, note("", "x")); err != nil {
		return err
	}
	for i, noise := range a.noise {
		if noise {
			time.Sleep(a.after / 4)
			a.after -= a.after / 4
			if _, err := l.Append(ctx, parts[i].Subject, log.Any, note("", "noise")); err != nil {
				return err
			}
		}
	}
	if a.reopen {
		if err := l.Close(); err != nil {
			return err
		}
		if l, err = open(); err != nil {
			return err
		}
	}
	a.queued = min(a.queued, a.after)
	time.Sleep(a.after - a.queued)
	if a.queued > 0 {
		g.Shut()
		go l.Append(ctx, parts[0].Subject, log.Any, note("", "ahead"))
		synctest.Wait()
		time.AfterFunc(a.queued, g.Open)
	}
	head, err := l.Head(ctx)
	if err != nil {
		return err
	}
	if a.queued > 0 {
		head++ // the append ahead
	}
	acks, err := l.AppendAll(ctx, all...)
	if err != nil {
		return fmt.Errorf("again: %w", err)
	}
	for i := range first {
		first[i].Duplicate = len(all[i].Events) > 0
	}
	if now, err := l.Head(ctx); err != nil || now != head || !reflect.DeepEqual(acks, first) {
		return fmt.Errorf("again: %+v, want %+v; the log grew from %v to %v, %v", acks, first, head, now, err)
	}
	return nil
}
