package events

import "regexp"

var uuid = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// IsUnique reports whether the id of a response is unique by chance: it has a UUID, or 16 random letters and digits in
// a row. Two costs with an id that is not may be of different responses: Ollama draws its ids from 999 numbers.
func IsUnique(response string) bool {
	if uuid.MatchString(response) {
		return true
	}
	from := 0
	for i := 0; i <= len(response); i++ {
		if i < len(response) && classOf(response[i]) != punctuation {
			continue
		}
		if isRandom(response[from:i]) {
			return true
		}
		from = i + 1
	}
	return false
}

// isRandom reports whether letters and digits look random. Counters and words are shorter, have few different
// characters, or change between letters and digits once.
func isRandom(run string) bool {
	if len(run) < 16 {
		return false
	}
	seen, changes := make(map[byte]bool), 0
	for i := range len(run) {
		seen[run[i]] = true
		if i > 0 && classOf(run[i]) != classOf(run[i-1]) {
			changes++
		}
	}
	return len(seen) >= 8 && changes >= 3
}

const (
	punctuation = iota
	small
	capital
	digit
)

func classOf(c byte) int {
	switch {
	case 'a' <= c && c <= 'z':
		return small
	case 'A' <= c && c <= 'Z':
		return capital
	case '0' <= c && c <= '9':
		return digit
	}
	return punctuation
}
