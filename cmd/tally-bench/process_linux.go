package main

import (
	"os"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// cpuTime returns the processor time of this process: its own and the kernel's.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

var peakLine = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// peakMemory returns the peak of the resident memory of this process, in bytes. The kernel's getrusage would include
// the memory of the process that started this one.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	found := peakLine.FindSubmatch(status)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(found[1]), 10, 64) // digits
	return n << 10
}
