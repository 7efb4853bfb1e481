package tavern_test

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// peakMemory returns a function that says by how many bytes this process was larger since, at
// most, than it is now; 0 where Linux does not say.
func peakMemory(t *testing.T) func() int64 {
	t.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak is now
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
		t.Fatal("there is no peak")
	}
	return need(strconv.ParseInt(strings.TrimSpace(text), 10, 64)) << 10
}
