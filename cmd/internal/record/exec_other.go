//go:build !unix

package record

import "os"

var (
	passed = []os.Signal{os.Interrupt}
	typed  = []os.Signal{os.Interrupt}
)
