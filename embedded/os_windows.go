package embedded

// descriptorLimit returns how many files and connections this process may have open. Windows has no limit.
func descriptorLimit() int { return maxOpen + maxReserved }
