package tavern

import (
	"testing"
	"time"
)

// ForgetQueues has this process forget what it knows of queues. Calls under way go on.
func ForgetQueues() {
	boards.Lock()
	defer boards.Unlock()
	for key := range boards.of {
		delete(boards.of, key)
	}
}

// ContestQueues has this process think that others were faster at its queues so often lately.
func ContestQueues(often int) {
	boards.Lock()
	defer boards.Unlock()
	for _, b := range boards.of {
		b.mu.Lock()
		b.contest = often
		b.mu.Unlock()
	}
}

// WaitFor is how long who has nothing to hand out waits for a time.
var WaitFor = waitFor

// MostApart is how many items are put in by themselves before callers join.
const MostApart = mostApart

// Joining counts the appends that put items into a queue now, and the callers that wait for
// them.
func Joining(q *Queue) (n [2]int) {
	joins.Lock()
	defer joins.Unlock()
	if u := joins.of[joinKey{q.st, q.sub}]; u != nil {
		n = [2]int{u.apart, len(u.waiting)}
	}
	return n
}

// AwaitWaiting waits until so many workers of this process wait at a queue.
func AwaitWaiting(t testing.TB, q *Queue, workers int) {
	t.Helper()
	for range 1000 {
		boards.Lock()
		b := boards.of[boardKey{q.st.Log, q.sub}]
		boards.Unlock()
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
