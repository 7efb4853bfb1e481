package tavern

// ForgetQueues has this process forget what it knows of queues. Calls under way go on.
func ForgetQueues() {
	boards.Lock()
	defer boards.Unlock()
	for key := range boards.of {
		delete(boards.of, key)
	}
}
