package app

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// memoryLimit is how much memory a command takes before it collects garbage more
	// often, unless GOMEMLIMIT says otherwise. Most of what it would take is garbage, and
	// what the server has read of the log and keeps for a moment. What SQLite takes comes
	// on top.
	memoryLimit = 168 << 20

	// memoryRoom is what is left of the limit, at the least, beyond what the server holds
	// of a store.
	memoryRoom = 148 << 20
)

func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// makeRoom raises the limit of limitMemory if the server holds much of the store that
// was opened: it has each subject in memory. With a limit that is near to what is held,
// garbage would be collected all the time, and with it what the server has read and is
// about to give.
func makeRoom() {
	if debug.SetMemoryLimit(-1) != memoryLimit {
		return
	}
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); int64(m.HeapAlloc)+memoryRoom <= memoryLimit {
		return
	}
	runtime.GC() // what is left is what is held
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(max(memoryLimit, int64(m.HeapAlloc)+memoryRoom))
}

// CollectLess has garbage collected a third as often, within the same bound of memory,
// unless GOGC says otherwise: for a command that takes appends from many, or many at
// once. Each append leaves behind what it consists of while hardly anything is held, and
// to collect that was a tenth of what appending costs, and a sixth of an import.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}

// WorkBesideSyncs has Go run on one thread more than there are processors, unless
// GOMAXPROCS says otherwise: for a command that has work of its own while it waits for
// the disk. A thread in a sync keeps its place for milliseconds before another one gets
// it, and the processor would be idle meanwhile.
func WorkBesideSyncs() {
	if os.Getenv("GOMAXPROCS") == "" {
		oneMore()
	}
}

var oneMore = sync.OnceFunc(func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) })
