package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
)

// numberedRequest is a request of a series on its way through a numbering.
type numberedRequest struct {
	arrival
	answers int
	stored  bool
}

// played is a numbering whose appends end when the test says so.
type played struct {
	*numbering
	requests map[string]*numberedRequest // by reply
	under    []chan error                // appends that wait for their end

	guard  sync.Mutex
	stored map[string][]uint64 // numbers, by producer; guarded by guard
	data   map[string]string   // of the stored requests, by producer and number; guarded by guard
}

func newPlayed(t *testing.T) *played {
	p := &played{requests: make(map[string]*numberedRequest), stored: make(map[string][]uint64), data: make(map[string]string)}
	over := func(a arrival, err error) {
		r := p.requests[a.reply]
		r.answers, r.stored = r.answers+1, err == nil
	}
	refuse := func(a arrival, err error) {
		over(a, err)
		order, is := errors.AsType[*orderError](err)
		if !is {
			return
		}
		if g, known := p.series[seriesKey{a.producer, a.sub}].given[order.next-1]; known && g.link.failed() {
			t.Errorf("%v, and number %d failed", err, order.next-1)
		}
	}
	p.numbering = &numbering{series: make(map[seriesKey]*series), refuse: refuse,
		answer: func(a arrival, done *Pending) {
			go func() {
				<-done.done
				over(a, done.err)
			}()
		},
		submit: func(a arrival, k *link) *Pending {
			done, end := &Pending{done: make(chan struct{})}, make(chan error, 1)
			p.under = append(p.under, end)
			go func() {
				err := k.wait()
				if err == nil {
					if err = <-end; err == nil {
						p.guard.Lock()
						p.stored[a.producer] = append(p.stored[a.producer], a.number)
						p.data[fmt.Sprint(a.producer, a.number)] = string(a.data)
						p.guard.Unlock()
					}
				}
				k.settle(err)
				done.finish(Ack{}, err)
			}()
			return done
		}}
	return p
}

// mustHold fails unless the bytes of the requests that wait are those that count.
func (p *played) mustHold(t *testing.T, steps string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	want := 0
	for _, s := range p.series {
		for _, w := range s.waiting {
			want += len(w.data)
		}
	}
	if p.held != want {
		t.Fatalf("%s: %d bytes count as waiting, want %d", steps, p.held, want)
	}
}

// Numbered requests are stored in the order of their numbers, whatever order they arrive in and however many fail or
// come again. Each is answered once, and those that wait are counted as long as they wait.
func TestNumberingPrograms(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 12))
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			p, steps, next := newPlayed(t), "", map[string]int{}
			for range 4 + random.IntN(30) {
				producer := []string{"p", "q"}[random.IntN(2)]
				switch step := random.IntN(8); {
				case step < 5:
					number := max(1, next[producer]+random.IntN(4)-1)
					next[producer] = max(next[producer], number)
					reply := fmt.Sprint(len(p.requests))
					r := &numberedRequest{arrival: arrival{sub: events.Session("", "s"), producer: producer, number: uint64(number), reply: reply, data: fmt.Append(nil, producer, number)}}
					if random.IntN(6) == 0 {
						r.data = append(r.data, '!') // another request under the same number
					}
					p.requests[reply] = r
					steps += fmt.Sprintf(" %s%d", producer, number)
					p.take(r.arrival)
				case step < 7 && len(p.under) > 0:
					i := random.IntN(len(p.under))
					err := error(nil)
					if random.IntN(3) == 0 {
						err = errors.New("no space")
					}
					steps += fmt.Sprintf(" end(%v)", err)
					p.under[i] <- err
					p.under = slices.Delete(p.under, i, i+1)
				default:
					steps += " wait"
					time.Sleep(patientFor / 2)
				}
				synctest.Wait()
				p.mustHold(t, steps)
			}
			p.close()
			p.mustHold(t, steps)
			for _, end := range p.under {
				end <- nil
			}
			synctest.Wait()
			for reply, r := range p.requests {
				if r.answers != 1 {
					t.Errorf("%s: request %s, %s%d, was answered %d times", steps, reply, r.producer, r.number, r.answers)
				}
				if data := p.data[fmt.Sprint(r.producer, r.number)]; r.stored && data != string(r.data) {
					t.Errorf("%s: request %s is answered as stored, and has the data %q; stored are %q", steps, reply, r.data, data)
				}
			}
			for producer, numbers := range p.stored {
				for i, n := range numbers {
					if n != uint64(i+1) {
						t.Errorf("%s: the requests of %s are stored in the order %v", steps, producer, numbers)
						break
					}
				}
			}
		})
	}
}
