//go:build !unix

package live

import "os"

var (
	passed = []os.Signal{os.Interrupt}
	typed  = []os.Signal{os.Interrupt}
)

// hasTerminal reports whether the process has a terminal that may send signals.
func hasTerminal() bool { return true }
