package log_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// Follow yields what a read of the same range yields when everything is there, wherever the range begins and ends, and
// however much is there when it begins.
func TestFollowIsARead(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 11))
	for range testkit.Times(400) {
		synctest.Test(t, func(t *testing.T) {
			mem := memlog.New(memlog.Config{})
			l := logtest.OpenOn(t, mem, log.Config{Host: storing[random.IntN(len(storing))]})
			subs := []events.Subject{events.Session("", "a"), events.Session("", "b"), events.Document("", "note", "a")}
			before, all := random.IntN(6), 8
			put := func(n int) {
				for range n {
					mustAppend(t, l, subs[random.IntN(len(subs))], note("", "x"))
				}
			}
			put(before)
			if before > 0 && random.IntN(2) == 0 {
				mem.Damage(events.Offset(1 + random.IntN(before)))
			}
			r := events.Range{After: events.Offset(random.IntN(all)), Limit: random.IntN(3), Buffered: random.IntN(2) == 0}
			if random.IntN(2) == 0 {
				r.Upto = events.Offset(1 + random.IntN(all))
			}
			switch random.IntN(3) {
			case 0:
				r.Subject = subs[random.IntN(len(subs))]
			case 1:
				r.Kind = events.KindSession
			}
			ctx, stop := context.WithCancel(t.Context())
			var got []string
			over := make(chan error, 1)
			go func() { over <- yields(l.Follow(ctx, r), &got) }()
			synctest.Wait()
			for range all - before {
				put(1)
				synctest.Wait()
			}
			stop()
			if err := <-over; err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			var want []string
			if err := yields(l.Read(t.Context(), r), &want); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || !slices.IsSortedFunc(got, byNumber) {
				t.Fatalf("%d of %d records were there, and a follow of %+v yielded %v, want %v", before, all, r, got, want)
			}
		})
	}
}

// yields appends the offsets of records to a list, with a mark behind those that cannot be read.
func yields(records iter.Seq2[events.Record, error], list *[]string) error {
	for rec, err := range records {
		damage, isLost := errors.AsType[*events.DamageError](err)
		switch {
		case isLost:
			*list = append(*list, fmt.Sprint(uint64(damage.Offset), "!"))
		case err != nil:
			return err
		default:
			*list = append(*list, fmt.Sprint(uint64(rec.Offset)))
		}
	}
	return nil
}

// byNumber compares what yields lists, whose numbers have one digit.
func byNumber(a, b string) int { return strings.Compare(a[:1], b[:1]) }

// slowly is a key of contexts.
type slowly struct{}

// uncertain is a backend that stores two messages and answers the first one. Last waits if its context has the key
// slowly.
type uncertain struct {
	log.Backend
	came int
	look chan struct{}
}

func (u *uncertain) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if u.came++; u.came > 2 {
		return log.Receipt{}, log.ErrUnknown
	}
	receipt, err := u.Backend.Publish(ctx, p)
	if u.came == 2 {
		return log.Receipt{}, log.ErrUnknown
	}
	return receipt, err
}

func (u *uncertain) Last(ctx context.Context, subject string) (log.Message, error) {
	m, err := u.Backend.Last(ctx, subject)
	if ctx.Value(slowly{}) != nil {
		<-u.look
	}
	return m, err
}

// A reader that has met a part of a unit does not wait for the rest after the log was closed.
func TestReaderAtTheEnd(t *testing.T) {
	t.Run("net W4 a reader ends with the log", func(t *testing.T) {
		err := inBubble(t, func() error {
			b := &uncertain{Backend: memlog.New(memlog.Config{}), look: make(chan struct{})}
			l, err := log.OpenOn(context.Background(), b, log.Config{Host: storing[2]})
			if err != nil {
				return err
			}
			a, c := events.Session("", "a"), events.Session("", "c")
			read, unit := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := l.AppendAll(context.Background(), log.Part{Subject: a, Events: []events.Event{note("", "x")}}, log.Part{Subject: c, Events: []events.Event{note("", "x")}})
				unit <- err
			}()
			synctest.Wait()
			go func() {
				_, err := l.Last(context.WithValue(context.Background(), slowly{}, true), a)
				read <- err
			}()
			synctest.Wait()
			closed := make(chan error, 1)
			go func() { closed <- l.Close() }()
			time.Sleep(time.Minute) // the unit ends without an answer
			close(b.look)
			if err := <-read; err == nil {
				return fmt.Errorf("a part of a unit was returned")
			}
			<-unit
			return <-closed
		})
		if err != nil {
			t.Error(err)
		}
	})
}
