package log

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
)

// idleCommitter returns a committer without its goroutine, so that a test makes each step itself.
func idleCommitter(t *testing.T, sync func() error) *committer {
	c := &committer{sync: sync, mark: func(events.Offset) {}, observer: nobody{}, life: t.Context(), kick: make(chan struct{}, 1)}
	c.era.Store(newEra(t.Context()))
	return c
}

// Each waiter is released by the first sync that covers it, in whatever order the waiters came.
func TestWaitersComeInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 13))
	for range 200 {
		c := idleCommitter(t, func() error { return nil })
		waits := make(map[<-chan struct{}]events.Offset)
		for range 30 {
			if random.IntN(4) > 0 {
				at := c.safe + 1 + events.Offset(random.IntN(12))
				waits[c.enlist(at, c.era.Load(), random.IntN(2) == 0)] = at
				continue
			}
			c.note(c.safe+events.Offset(random.IntN(6)), c.era.Load())
			c.group()
			for over, at := range waits {
				isOver := false
				select {
				case <-over:
					isOver = true
				default:
				}
				if isOver != (at <= c.safe) {
					t.Fatalf("everything up to %v is on disk, and the waiter for %v is released: %v", c.safe, at, isOver)
				}
			}
		}
	}
}

// The watermark stays below every unit that is being stored, whatever syncs fail and whatever a recovery loses.
func TestHoldsThroughRecoveries(t *testing.T) {
	t.Run("net R1 the watermark stays below a unit that is stored again", func(t *testing.T) {
		random := rand.New(rand.NewPCG(14, 14))
		for range 500 {
			fails, head, steps := false, events.Offset(0), ""
			c := idleCommitter(t, func() error {
				if fails {
					return errors.New("input/output error")
				}
				return nil
			})
			below := make(map[*hold]events.Offset) // the records of the unit are behind this offset
			var holds []*hold
			for range 25 {
				switch random.IntN(6) {
				case 0:
					if c.failed() == nil {
						h := c.hold()
						holds, below[h] = append(holds, h), head
						steps += fmt.Sprintf(" hold%d", len(holds))
					}
				case 1:
					if n := len(holds); n > 0 && c.failed() == nil {
						i := random.IntN(n)
						c.letGo(holds[i])
						holds = slices.Delete(holds, i, i+1)
						steps += " end"
					}
				case 2:
					fails = true
					c.group()
					steps += " fail"
				case 3:
					fails = false
					head = c.safe + events.Offset(random.IntN(int(head-c.safe)+1))
					c.revive(head)
					for _, h := range holds {
						below[h] = min(below[h], head) // a unit is stored again behind the remaining records
					}
					steps += fmt.Sprintf(" revive%v", head)
				default:
					if c.failed() == nil {
						head++
						c.note(head, c.era.Load())
						c.group()
						steps += fmt.Sprintf(" note%v", head)
					}
				}
				for _, h := range holds {
					if c.safe > below[h] || c.before(h) > below[h] {
						t.Fatalf("%s: a unit is being stored behind %v; the watermark is %v, and it is looked for behind %v", steps, below[h], c.safe, c.before(h))
					}
				}
			}
		}
	})
}

// Reports of lost records are in the order of their offsets, each once, in whatever order the losses were found, known and told.
func TestHolesAreInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 15))
	for range 200 {
		l, want := &Log{}, make(map[events.Offset]bool)
		for range 12 {
			h := Hole{Offset: events.Offset(1 + random.IntN(9)), Subject: events.Session("", "s").NATS()}
			switch random.IntN(3) {
			case 0:
				l.Lose([]Hole{h})
				want[h.Offset] = true
			case 1:
				l.holes.add(h.Offset)
			default:
				if _, is := l.holes.found[h.Offset]; is {
					want[h.Offset] = true
				}
				l.Tell([]Hole{h})
			}
			var got []events.Offset
			for _, h := range l.holes.reported(0) {
				got = append(got, h.Offset)
			}
			if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(want) {
				t.Fatalf("reported are %v, want %v", got, want)
			}
			upto := events.Offset(random.IntN(10))
			got = slices.DeleteFunc(got, func(at events.Offset) bool { return at > upto })
			var yielded []events.Offset
			l.withHoles(stretch{filter: events.SubjectFilter, upto: upto}, func(it item, _ error) bool {
				yielded = append(yielded, it.at)
				return true
			})(item{}, io.EOF)
			if !slices.Equal(yielded, got) {
				t.Fatalf("a read up to %v that finds nothing yields the losses %v, want %v", upto, yielded, got)
			}
		}
	}
}
