//go:build !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package tail

import "math"

const maxWatches = math.MaxInt
