package tavern_test

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// peakMemory returns a function that returns by how many bytes this process was larger, at its peak since, than it is
// now. It returns 0 if the system has no peak.
func peakMemory(t *testing.T) func() int64 {
	t.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // resets the peak
		return func() int64 { return 0 }
	}
	before := residentPeak(t)
	return func() int64 { return residentPeak(t) - before }
}

func residentPeak(t *testing.T) int64 {
	t.Helper()
	_, text, ok := strings.Cut(string(need(os.ReadFile("/proc/self/status"))), "VmHWM:")
	text, _, ends := strings.Cut(text, "kB")
	if !ok || !ends {
		t.Fatal("the system reports no peak")
	}
	return need(strconv.ParseInt(strings.TrimSpace(text), 10, 64)) << 10
}
