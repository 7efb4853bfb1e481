//go:build !unix

package live

import "os"

var (
	passed = []os.Signal{os.Interrupt}
	typed  = []os.Signal{os.Interrupt}
)
