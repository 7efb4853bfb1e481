package log

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// Bounds of the requests that wait for their turn.
const (
	maxAhead     = 64              // requests of one series that may be ahead of the missing one
	maxHeld      = 64 << 20        // bytes of all waiting requests
	maxSeries    = 4096            // series that are known at a time
	keepAnswers  = 64              // of a series, for repeated requests
	patientFor   = time.Second     // how long a request waits for those before it
	forgetSeries = 2 * time.Minute // how long a series is remembered at least
)

// orderError refuses a numbered request. Nothing of it was written.
type orderError struct {
	number, next uint64 // of the request, and the number that the series needs next
}

func (e *orderError) Error() string {
	if e.gap() {
		return fmt.Sprintf("log: append: request %d of a series: request %d before it did not arrive", e.number, e.next)
	}
	return fmt.Sprintf("log: append: request %d of a series: the number was used before, for another request or too long ago; the next number is %d", e.number, e.next)
}

func (e *orderError) gap() bool { return e.number > e.next }

// link delays an append until the one before it in a series was stored. A nil link does not delay.
type link struct {
	before *link
	known  chan struct{} // closed when err is set
	err    error
}

// wait returns when the append may run: ErrAborted if the one before failed.
func (k *link) wait() error {
	if k == nil || k.before == nil {
		return nil
	}
	<-k.before.known
	if err := k.before.err; err != nil {
		return fmt.Errorf("log: append: %w: the request before it failed", ErrAborted)
	}
	return nil
}

// settle records whether the append was stored.
func (k *link) settle(err error) {
	if k == nil {
		return
	}
	k.before, k.err = nil, err
	close(k.known)
}

// stored and failed report whether the append is known to have been stored, or to have failed.
func (k *link) stored() bool { return k.isKnown() && k.err == nil }
func (k *link) failed() bool { return k.isKnown() && k.err != nil }

func (k *link) isKnown() bool {
	select {
	case <-k.known:
		return true
	default:
		return false
	}
}

// numbering orders numbered requests. The requests of a producer to a subject are a series, from 1 on. Each is stored
// behind the one before, in whatever order they arrive. A number is used up when its request was stored.
type numbering struct {
	submit func(arrival, *link) *Pending
	answer func(arrival, *Pending)
	refuse func(arrival, error)

	mu     sync.Mutex // guards the fields below
	series map[seriesKey]*series
	held   int // bytes
}

type seriesKey struct {
	producer string
	sub      events.Subject
}

type series struct {
	next    uint64            // number of the request that is submitted next
	waiting map[uint64]*early // requests ahead of it
	given   map[uint64]given  // requests before it, from kept on
	kept    uint64
	used    time.Time
}

// early is a request that waits for the ones before it.
type early struct {
	arrival
	timer *time.Timer
}

// given is a request that was submitted.
type given struct {
	sum  [sha256.Size]byte
	link *link
	done *Pending
}

// take handles a request that arrived: it submits, holds or refuses it.
func (n *numbering) take(a arrival) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.find(seriesKey{a.producer, a.sub})
	if err != nil {
		n.refuse(a, err)
		return
	}
	s.used = time.Now()
	s.backUp()
	switch {
	case a.number < s.next:
		g, known := s.given[a.number]
		if !known || g.sum != sha256.Sum256(a.data) {
			n.refuse(a, &orderError{number: a.number, next: s.next})
			return
		}
		a.repeated = true
		n.answer(a, g.done)
	case a.number == s.next:
		n.give(s, a)
		n.release(s)
	default:
		n.hold(s, a)
	}
}

// find returns a series, new if it is unknown. If there are too many, the one that has been silent for longest is
// forgotten.
func (n *numbering) find(key seriesKey) (*series, error) {
	if s := n.series[key]; s != nil {
		return s, nil
	}
	if len(n.series) >= maxSeries {
		for old, s := range n.series {
			if len(s.waiting) == 0 && time.Since(s.used) > forgetSeries {
				delete(n.series, old)
			}
		}
	}
	if len(n.series) >= maxSeries {
		return nil, fmt.Errorf("log: append: %w: too many series of numbered requests: %d", ErrUnavailable, len(n.series))
	}
	s := &series{next: 1, kept: 1, waiting: make(map[uint64]*early), given: make(map[uint64]given)}
	n.series[key] = s
	return s, nil
}

// backUp takes back the numbers of requests that were not stored.
func (s *series) backUp() {
	for s.next > 1 {
		g, known := s.given[s.next-1]
		if !known || !g.link.failed() {
			return
		}
		s.next--
		delete(s.given, s.next)
	}
}

// give submits the next request of a series.
func (n *numbering) give(s *series, a arrival) {
	k := &link{before: s.given[s.next-1].link, known: make(chan struct{})}
	done := n.submit(a, k)
	s.given[s.next] = given{sum: sha256.Sum256(a.data), link: k, done: done}
	s.next++
	s.backUp() // it may have been refused at once
	for s.next-s.kept > keepAnswers && s.given[s.kept].link.stored() {
		delete(s.given, s.kept)
		s.kept++
	}
	n.answer(a, done)
}

// release submits the waiting requests whose turn has come.
func (n *numbering) release(s *series) {
	for w := s.waiting[s.next]; w != nil; w = s.waiting[s.next] {
		n.drop(s, w)
		before := s.next
		if n.give(s, w.arrival); s.next == before {
			return
		}
	}
}

// hold keeps a request until the ones before it have come, or patientFor has passed.
func (n *numbering) hold(s *series, a arrival) {
	if w := s.waiting[a.number]; w != nil { // a client that sends it again no longer waits for the first
		n.drop(s, w)
		n.refuse(w.arrival, &orderError{number: a.number, next: s.next})
	}
	if a.number > s.next+maxAhead || n.held+len(a.data) > maxHeld {
		n.refuse(a, &orderError{number: a.number, next: s.next})
		return
	}
	w := &early{arrival: a}
	w.timer = time.AfterFunc(patientFor, func() { n.expire(s, w) })
	s.waiting[a.number] = w
	n.held += len(a.data)
}

// expire refuses a request that waited for too long.
func (n *numbering) expire(s *series, w *early) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.waiting[w.number] != w {
		return
	}
	n.drop(s, w)
	s.backUp()
	n.refuse(w.arrival, &orderError{number: w.number, next: s.next})
}

func (n *numbering) drop(s *series, w *early) {
	w.timer.Stop()
	delete(s.waiting, w.number)
	n.held -= len(w.data)
}

// close refuses all waiting requests.
func (n *numbering) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.series {
		for _, w := range s.waiting {
			n.drop(s, w)
			n.refuse(w.arrival, errOwnerEnds)
		}
	}
}
