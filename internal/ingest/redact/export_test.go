package redact

// Words are what the rules are found by, and what says that a text has escapes.
func Words() []string {
	words := append([]string(nil), escapeWords...)
	for _, r := range builtin() {
		words = append(words, r.words...)
	}
	return words
}

// Work returns how many bytes are looked at for a line.
func (r *Redactor) Work(line []byte) int {
	_, steps := r.find(line)
	return steps
}
