package redact

// Words returns the words of the rules, and the words that indicate escapes.
func Words() []string {
	words := append([]string(nil), escapeWords...)
	for _, r := range builtin() {
		words = append(words, r.words...)
	}
	return words
}

// Work returns the number of bytes examined for a line.
func (r *Redactor) Work(line []byte) int {
	_, steps := r.find(line)
	return steps
}

// Marked returns the number of redaction marks in a line, of any origin.
func Marked(line []byte) int { return len(marksIn(line)) }
