//go:build !unix

package cli

// HasTerminal reports whether the process has a terminal that may send signals.
func HasTerminal() bool { return true }
