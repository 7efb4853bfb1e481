package cmdutil

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// memoryLimit is how much memory a command takes before it collects garbage more
	// often, unless GOMEMLIMIT says otherwise. Most of what it would take is garbage, and
	// what the server has read of the log and keeps for a moment. What SQLite takes comes
	// on top.
	memoryLimit = 168 << 20

	// memoryRoom is what is left of the limit beyond what is held: so many bytes, and half of
	// what is held, if that is more.
	memoryRoom = 64 << 20
)

// limitMemory bounds memory. The bound follows what is held: the server has each subject of a
// store in memory, a tree each of its files, and with a limit that is near to what is held,
// garbage would be collected all the time, and with it what the server has read and is about
// to give.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(memoryLimit)
	held := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	limit := int64(memoryLimit)
	afterCollections(func() {
		metrics.Read(held)
		live := int64(held[0].Value.Uint64())
		next := max(memoryLimit, live+max(memoryRoom, live/2))
		if max(next-limit, limit-next) > limit/16 { // setting it stops everything for a moment
			limit = next
			debug.SetMemoryLimit(limit)
		}
	})
}

// afterCollections calls a function after each collection of garbage, one call at a time.
func afterCollections(do func()) {
	type garbage struct{ do func() }
	var collected func(*garbage)
	collected = func(g *garbage) {
		g.do()
		runtime.SetFinalizer(g, collected)
	}
	runtime.SetFinalizer(&garbage{do}, collected)
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
