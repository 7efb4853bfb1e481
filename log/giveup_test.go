package log_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// storing configures logs that store appends in different ways.
var storing = []log.Host{
	{}, // as the backend does
	{Sync: func(string) error { return nil }},              // in groups
	{Sync: func(string) error { return nil }, Owner: true}, // units with a redo record
}

// inBubble runs a part of a law under a fake clock. A deadlock is an error.
func inBubble(t *testing.T, play func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v, after %w", p, err)
		}
	}()
	synctest.Test(t, func(*testing.T) { err = play() })
	return err
}

// openGated opens a log on a Gate.
func openGated(host log.Host, deaf bool) (*log.Log, *logtest.Gate, error) {
	g := &logtest.Gate{Backend: memlog.New(memlog.Config{}), Deaf: deaf}
	l, err := log.OpenOn(context.Background(), g, log.Config{Host: host, AckWait: 24 * time.Hour})
	return l, g, err
}

// large is the size of an event of which a unit with two does not get a redo record.
const large = 600 << 10

// playing says how a crowd calls a log.
type playing struct {
	subjects int  // the calls are to one of them
	parts    int  // or to as many of them
	patient  bool // few give up
	deaf     bool // the Gate does not notice
	owner    bool // only as an owner stores

	// readers, unless nil, returns a function that is called after each step.
	readers func(*logtest.Crowd) (between func() error, stop func())
}

// crowd plays random programs in which callers wait, and give up.
func crowd(t *testing.T, how playing) {
	subs, all, giveUps, hosts := make([]events.Subject, how.subjects), make([]int, how.subjects), 3, storing
	for i := range subs {
		subs[i], all[i] = events.Session("", string(rune('a'+i))), i
	}
	if how.patient {
		giveUps = 1
	}
	if how.owner {
		hosts = storing[2:]
	}
	type step struct {
		What, Number, Size, Each, Far int
		Subjects                      []int
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			What:     rapid.IntRange(0, 9).Draw(t, "what"),
			Number:   rapid.IntRange(0, 9).Draw(t, "number"),
			Size:     rapid.SampledFrom([]int{1, 1, 1, 1, 1, large}).Draw(t, "size"),
			Each:     rapid.IntRange(1, 2).Draw(t, "each"),
			Far:      rapid.IntRange(0, 9).Draw(t, "far"),
			Subjects: rapid.Permutation(all).Draw(t, "subjects")[:rapid.IntRange(1, how.parts).Draw(t, "parts")],
		}
	}), 1, 30)
	rapid.Check(t, func(rt *rapid.T) {
		host, program := hosts[rapid.IntRange(0, len(hosts)-1).Draw(rt, "host")], steps.Draw(rt, "program")
		err := inBubble(t, func() error {
			l, g, err := openGated(host, how.deaf)
			if err != nil {
				return err
			}
			c := &logtest.Crowd{Log: l, Gate: g, KeepsTurns: host.Sync != nil}
			defer l.Abandon()
			defer c.Drop()
			if how.readers != nil {
				var stop func()
				c.Between, stop = how.readers(c)
				defer stop()
			}
			g.Shut()
			for _, s := range program {
				var err error
				switch under := c.Undecided(); {
				case s.What < 4:
					list := make([]events.Subject, len(s.Subjects))
					for i, n := range s.Subjects {
						list[i] = subs[n]
					}
					err = c.Begin(logtest.Call{Subjects: list, Each: s.Each, Size: s.Size, Late: s.Number == 0})
				case s.What < 4+giveUps && len(under) > 0:
					var let []int
					if n := g.Waiting(); n > 0 && s.Each == 2 {
						let = []int{s.Number % n}
					}
					err = c.GiveUp(under[s.Number%len(under)], let...)
				case g.Waiting() > 0:
					err = c.Let(s.Number % g.Waiting())
					for n := 0; n < s.Far && g.Waiting() > 0 && err == nil; n++ {
						err = c.Let(g.Waiting() - 1) // the next stop of the same call, if it is not over
					}
				}
				if err != nil {
					return err
				}
			}
			return c.Finish()
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// Nothing but a publication that goes on moves the log: the clock stands still between two steps of a Crowd, and a call
// that then ends after all has slept. Callers wait for each other, some give up, and the others do not notice.
func TestGivingUp(t *testing.T) {
	t.Run("net W1 an append that gives up leaves no trace", func(t *testing.T) { crowd(t, playing{subjects: 2, parts: 1}) })
	t.Run("net W2 a unit that gives up leaves all queues", func(t *testing.T) { crowd(t, playing{subjects: 3, parts: 3}) })
	t.Run("net W3 a unit returns when its context ends", func(t *testing.T) { crowd(t, playing{subjects: 3, parts: 3, deaf: true}) })
	t.Run("net W4 an append is acknowledged when nothing is ahead of it", func(t *testing.T) { crowd(t, playing{subjects: 8, parts: 2, patient: true, owner: true}) })
}
