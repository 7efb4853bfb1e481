package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func purse(n int) events.Subject { return events.Document("", "purse", strconv.Itoa(n)) }

const purses = 6

// Transactions move amounts between documents on a cluster whose leader is killed. Every reader sees the same sum at
// each moment, and every acknowledged move is stored.
func TestClusterUnits(t *testing.T) {
	testkit.OnlyFull(t, "TestClusterLosesNothing kills a leader, and the units of one machine are played in package log")
	testkit.NotUnderRace(t) // the servers are other processes, and other tests run the log under the detector
	home(t, nil)
	rounds := 1
	if testkit.Soak() {
		rounds = 12
	}
	c := mustCluster(t)
	st := c.mustOpen(embedded.Options{MinDurability: "replicated"})
	for n := range purses {
		untilAnswered(t, func(ctx context.Context) (log.Ack, error) {
			return st.Append(ctx, purse(n), log.At(0), written("start", 100))
		})
	}
	js := c.mustWatch()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	moved := make([]int, 4)
	for w := range moved {
		l := c.mustLog(w % 3)
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if moveAmount(t, l, fmt.Sprint(w, "-", i)) {
					moved[w]++
				}
			}
		})
	}
	running.Go(func() {
		for ctx.Err() == nil {
			addUp(ctx, t, st.Log) // an error means that the servers elect a leader
		}
	})
	for range rounds {
		time.Sleep(time.Second)
		i := c.leader(js)
		c.kill(i)
		time.Sleep(2 * time.Second)
		c.start(i)
		time.Sleep(time.Second)
	}
	stop()
	running.Wait()
	all := 0
	for _, n := range moved {
		all += n
	}
	for _, m := range c.nodes {
		l := c.mustOpen(embedded.Options{URL: m.url}).Log
		there := untilAnswered(t, func(ctx context.Context) (int, error) { return addUp(ctx, t, l) })
		if there < all || there == 0 {
			t.Errorf("%s: got %d moves, want %d", m.name, there, all)
		}
	}
}

func written(id string, amount int64) events.Event {
	return events.Event{ID: id, Source: "urn:test:purse", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: strconv.AppendInt(nil, amount, 10)}
}

// moveAmount moves an amount from one document to another, and reports whether the move is stored.
func moveAmount(t *testing.T, l *log.Log, id string) bool {
	from := testkit.Random(t).IntN(purses)
	pair := [2]int{from, (from + 1 + testkit.Random(t).IntN(purses-1)) % purses}
	amount := int64(testkit.Random(t).IntN(20))
	var parts []log.Part
	for i, n := range pair {
		rec, err := l.Last(context.Background(), purse(n))
		if err != nil {
			return false // the servers elect a leader
		}
		have, err := strconv.ParseInt(string(rec.Data), 10, 64)
		if err != nil {
			t.Errorf("%v holds %q", purse(n), rec.Data)
		}
		change := []int64{-amount, amount}[i]
		parts = append(parts, log.Part{Subject: purse(n), Expect: log.At(rec.Offset), Events: []events.Event{written(id, have+change)}})
	}
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := l.AppendAll(context.Background(), parts...)
		conflict, refused := errors.AsType[*log.ConflictError](err)
		switch {
		case err == nil:
			return true
		case refused && (conflict.Subject == parts[0].Subject || conflict.Subject == parts[1].Subject):
			return false
		case !errors.Is(err, log.ErrUnknown) && !errors.Is(err, log.ErrUnavailable) || time.Now().After(giveUp):
			t.Errorf("a move: %v", err)
			return false
		}
	}
}

// addUp reads the log and fails unless every move has both sides. It returns the number of moves.
func addUp(ctx context.Context, t *testing.T, l projector.Source) (moves int, err error) {
	sides, have := make(map[string]int), make(map[events.Subject]int64)
	for rec, err := range l.Read(ctx, events.Range{Kind: "purse"}) {
		if err != nil {
			return 0, err
		}
		sides[rec.ID]++
		have[rec.Subject], err = strconv.ParseInt(string(rec.Data), 10, 64)
		if err != nil {
			t.Errorf("%v holds %q", rec.Subject, rec.Data)
		}
	}
	sum := int64(0)
	for _, amount := range have {
		sum += amount
	}
	if sum != purses*100 {
		t.Errorf("got the sum %d, want 0", sum)
	}
	delete(sides, "start")
	for id, n := range sides {
		if n != 2 {
			t.Errorf("move %s: got %d sides, want 2", id, n)
		}
	}
	return len(sides), nil
}
