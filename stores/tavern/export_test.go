package tavern

import (
	"testing"
	"time"

	"github.com/tallylog/tally"
)

// ForgetQueues has a store forget what it knows of queues. Calls under way go on.
func ForgetQueues(st *tally.Store) {
	all := boardsOf(st)
	all.mu.Lock()
	defer all.mu.Unlock()
	clear(all.of)
}

// ContestQueues has a store think that others were faster at its queues so often lately.
func ContestQueues(st *tally.Store, often int) {
	all := boardsOf(st)
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, b := range all.of {
		b.mu.Lock()
		b.contest = often
		b.mu.Unlock()
	}
}

// Timers returns a function that stops the timers of a queue's board and counts those that
// were set. The queue is in use.
func Timers(q *Queue) (stop func() int) {
	all := boardsOf(q.st)
	all.mu.Lock()
	defer all.mu.Unlock()
	b := all.of[q.sub]
	return func() (set int) {
		for _, t := range []*time.Timer{b.idle, b.timer} {
			if t.Stop() {
				set++
			}
		}
		return set
	}
}

// WaitFor is how long who has nothing to hand out waits for a time.
var WaitFor = waitFor

// MostApart is how many items are put in by themselves before callers join.
const MostApart = mostApart

// Joining counts the appends that put items into a queue now, and the callers that wait for
// them.
func Joining(q *Queue) (n [2]int) {
	all := joinsOf(q.st)
	all.mu.Lock()
	defer all.mu.Unlock()
	if u := all.of[joinKey{q.st.Log, q.sub}]; u != nil {
		n = [2]int{u.apart, len(u.waiting)}
	}
	return n
}

// AwaitWaiting waits until so many workers of a store wait at a queue.
func AwaitWaiting(t testing.TB, q *Queue, workers int) {
	t.Helper()
	for range 1000 {
		all := boardsOf(q.st)
		all.mu.Lock()
		b := all.of[q.sub]
		all.mu.Unlock()
		if b != nil {
			b.mu.Lock()
			n := len(b.waiting)
			b.mu.Unlock()
			if n == workers {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d workers were to wait at queue %s", workers, q.id)
}
