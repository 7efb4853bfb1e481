package cmdutil

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// The memory limit is twice the live memory and some room, also when that grows, and falls with it.
func TestMemoryLimitFollowsWhatIsHeld(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	limitMemory()
	is := func(so func(limit int64) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !so(debug.SetMemoryLimit(-1)); time.Sleep(time.Millisecond) {
			if runtime.GC(); time.Now().After(end) {
				t.Fatalf("got a limit of %d MB", debug.SetMemoryLimit(-1)>>20)
			}
		}
	}
	held := make([]byte, 300<<20)
	is(func(limit int64) bool {
		return limit >= 2*int64(len(held))+memoryRoom && limit < 2*int64(len(held))+3*memoryRoom
	})
	runtime.KeepAlive(held)
	held = nil
	is(func(limit int64) bool { return limit < memoryLimit+memoryRoom })
}
