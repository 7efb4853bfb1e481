package tavern

import (
	"testing"
	"time"

	"github.com/tallylog/tally"
)

// ForgetQueues drops a store's caches of queues. Calls in progress continue.
func ForgetQueues(st *tally.Store) {
	all := queueCachesOf(st)
	all.mu.Lock()
	defer all.mu.Unlock()
	clear(all.of)
}

// ContestQueues sets how often other processes were faster at the store's queues lately.
func ContestQueues(st *tally.Store, often int) {
	all := queueCachesOf(st)
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, qc := range all.of {
		qc.mu.Lock()
		qc.contest = often
		qc.mu.Unlock()
	}
}

// Timers returns a function that stops the timers of a queue's cache, and returns how many were set. The queue is in
// use.
func Timers(q *Queue) (stop func() int) {
	all := queueCachesOf(q.st)
	all.mu.Lock()
	defer all.mu.Unlock()
	qc := all.of[q.sub]
	return func() (set int) {
		for _, t := range []*time.Timer{qc.idle, qc.timer} {
			if t.Stop() {
				set++
			}
		}
		return set
	}
}

// WaitFor returns how long a worker without an item waits until a time.
var WaitFor = waitFor

// MaxSeparate is how many items are appended separately before callers join.
const MaxSeparate = maxSeparate

// Joining counts the appends of items to a queue in progress, and the callers that wait for them.
func Joining(q *Queue) (n [2]int) {
	all := joinsOf(q.st)
	all.mu.Lock()
	defer all.mu.Unlock()
	if u := all.of[joinKey{q.st.Log, q.sub}]; u != nil {
		n = [2]int{u.separate, len(u.waiting)}
	}
	return n
}

// AwaitWaiting waits until a number of the store's workers wait at a queue.
func AwaitWaiting(t testing.TB, q *Queue, workers int) {
	t.Helper()
	for range 1000 {
		all := queueCachesOf(q.st)
		all.mu.Lock()
		qc := all.of[q.sub]
		all.mu.Unlock()
		if qc != nil {
			qc.mu.Lock()
			n := len(qc.waiting)
			qc.mu.Unlock()
			if n == workers {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("timeout: want %d workers waiting at queue %s", workers, q.id)
}
