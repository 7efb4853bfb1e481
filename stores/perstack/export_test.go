package perstack

// Remembered is the number of stores of which the functions of the original remember jobs.
func Remembered() int {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return len(shared.byStore)
}

// MaxMemories bounds the jobs of each.
const MaxMemories = maxMemories
