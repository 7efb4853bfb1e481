package tally_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// liveScans is a backend that counts the cursors that wait for new messages.
type liveScans struct {
	sharedMem
	now atomic.Int64
}

func (b *liveScans) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	c, err := b.sharedMem.Scan(ctx, q)
	if !q.Live || err != nil {
		return c, err
	}
	b.now.Add(1)
	return &liveScan{Cursor: c, of: b}, nil
}

type liveScan struct {
	log.Cursor
	of   *liveScans
	once sync.Once
}

func (c *liveScan) Close() {
	c.once.Do(func() { c.of.now.Add(-1) })
	c.Cursor.Close()
}

// A Tail yields what a read of its range does, whatever others join, leave or are too slow for. All share one cursor.
func TestTail(t *testing.T) {
	t.Run("W-04 random readers", func(t *testing.T) {
		for seed := range testkit.Times(40) {
			random := rand.New(rand.NewPCG(uint64(seed), 4))
			synctest.Test(t, func(t *testing.T) { playTail(t, random) })
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	})
}

// tailed is a reader of a range with what it was given, a line for each record.
type tailed struct {
	r      events.Range
	have   []string
	lagged int
}

// read follows the range until ctx is done. It pauses, leaves and comes back at random.
func (r *tailed) read(ctx context.Context, st *tally.Store, random *rand.Rand) error {
	for ctx.Err() == nil {
		again := false
		for rec, err := range st.Tail(ctx, r.r) {
			if lag, ok := errors.AsType[*tally.LaggedError](err); ok {
				if r.lagged++; lag.After != r.r.After {
					return fmt.Errorf("lagged after %v, but the last record was %v", lag.After, r.r.After)
				}
				again = true
				continue
			}
			if err != nil && !events.IsDamage(err) {
				return err
			}
			line := lineOf(rec, err)
			r.have, r.r.After = append(r.have, line.text), line.at
			if random.IntN(6) == 0 {
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
			}
			if again = random.IntN(30) == 0; again {
				break
			}
		}
		if !again && ctx.Err() == nil {
			return errors.New("the Tail ended by itself")
		}
	}
	return nil
}

type tailLine struct {
	at   events.Offset
	text string
}

func lineOf(rec events.Record, err error) tailLine {
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return tailLine{damage.Offset, fmt.Sprint(damage.Offset, " damaged")}
	}
	return tailLine{rec.Offset, fmt.Sprint(rec.Offset, " ", rec.Subject, " ", rec.ID, " ", string(rec.Data))}
}

func playTail(t *testing.T, random *rand.Rand) {
	b := &liveScans{sharedMem: sharedMem{memlog.New(memlog.Config{})}}
	st := on(t, b, tally.Config{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	head, damaged := events.Offset(0), make(map[string]events.Subject) // by line
	write := func() {
		n := 1
		if random.IntN(8) == 0 {
			n = 700 // two such appends are more than wait for a reader
		}
		id, isDoc := fmt.Sprint("s", random.IntN(3)), random.IntN(3) == 0
		if random.IntN(10) == 0 {
			b.Damage(head + 1)
			sub := st.Session(id).Subject()
			if isDoc {
				sub = events.Document(sub.Namespace, "doc", id)
			}
			damaged[lineOf(events.Record{}, &events.DamageError{Offset: head + 1}).text] = sub
		}
		if isDoc {
			ack, err := st.Documents().Save(ctx, "doc", id, text(strings.Repeat("x", random.IntN(9))))
			if err != nil && !events.IsDamage(err) {
				t.Fatal(err)
			}
			head = max(head, ack.Offset)
			return
		}
		list := make([]events.Payload, n)
		for i := range list {
			list[i] = &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: []byte(fmt.Sprintf(`{"n":"%v.%d"}`, head, i))}}}
		}
		ack, err := st.Session(id).Append(ctx, log.Any, list...)
		if err != nil {
			t.Fatal(err)
		}
		head = ack.Last
	}
	ranges := []events.Range{{}, {Kind: "doc"}, {Kind: events.KindSession}, {Namespace: "none"}, {Subject: events.Session("default", "s0")}, {Subject: events.Session("default", "s1")}, {Subject: events.Document("default", "doc", "s0")}}
	readers := make([]*tailed, 8)
	begun := make([]events.Range, len(readers))
	var reading sync.WaitGroup
	for i := range readers {
		for range random.IntN(4) {
			write()
		}
		r := ranges[random.IntN(len(ranges))]
		r.After = events.Offset(random.Uint64N(uint64(head) + 1))
		readers[i], begun[i] = &tailed{r: r}, r
		own := rand.New(rand.NewPCG(random.Uint64(), 1))
		reading.Go(func() {
			if err := readers[i].read(ctx, st, own); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		synctest.Wait() // a cursor that was left has ended
		if n := b.now.Load(); n > 1 {
			t.Errorf("%d cursors at once, want 1", n)
		}
	}
	for range random.IntN(8) {
		write()
	}
	mustTurns(t, st.Session("last"), "damage is noticed when the next record comes")
	time.Sleep(time.Hour) // pauses are over
	synctest.Wait()
	stop()
	reading.Wait()
	for i, r := range readers {
		var want []string
		for rec, err := range st.Log.Read(t.Context(), begun[i]) {
			if err != nil && !events.IsDamage(err) {
				t.Fatal(err)
			}
			want = append(want, lineOf(rec, err).text)
		}
		others := func(line string) bool { // a reader may be told about damage of a subject that its range lacks, or not
			sub, ok := damaged[line]
			return ok && !begun[i].Includes(sub, begun[i].After+1)
		}
		r.have, want = slices.DeleteFunc(r.have, others), slices.DeleteFunc(want, others)
		if !slices.Equal(r.have, want) {
			n := 0
			for n < min(len(r.have), len(want)) && r.have[n] == want[n] {
				n++
			}
			t.Errorf("reader %d of %+v, %d times too slow, was given %d lines, want %d; from the first difference on %.200q, want %.200q", i, begun[i], r.lagged, len(r.have), len(want), r.have[n:min(n+3, len(r.have))], want[n:min(n+3, len(want))])
		}
	}
}
