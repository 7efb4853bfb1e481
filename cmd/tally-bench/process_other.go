//go:build !linux

package main

import "time"

// cpuTime returns 0: only Linux is measured.
func cpuTime() time.Duration { return 0 }

// peakMemory returns 0: only Linux is measured.
func peakMemory() int64 { return 0 }
