package tavern

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
