package embedded

// descriptors returns how many files and connections this process may have open. Windows has no limit.
func descriptors() int { return maxOpen + maxReserved }
