package cmdutil

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// memoryLimit is the amount of Go memory beyond which the garbage collector runs more often, unless GOMEMLIMIT sets
	// another. Most of it is garbage, and blocks of the log that the server keeps for a moment. SQLite's memory is not
	// included.
	memoryLimit = 168 << 20

	// memoryRoom is the room between twice the live memory and the limit.
	memoryRoom = 64 << 20
)

// limitMemory bounds memory. The bound grows with the live memory, since the server holds each subject of a store and a
// tree holds each of its files. With a bound close to the live memory, the collector would run all the time and drop
// the blocks that the server is about to send.
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
		next := max(memoryLimit, 2*live+memoryRoom)
		if max(next-limit, limit-next) > limit/16 { // setting the limit stops all goroutines for a moment
			limit = next
			debug.SetMemoryLimit(limit)
		}
	})
}

// afterCollections calls a function after each garbage collection, one call at a time.
func afterCollections(do func()) {
	type garbage struct{ do func() }
	var collected func(*garbage)
	collected = func(g *garbage) {
		g.do()
		runtime.SetFinalizer(g, collected)
	}
	runtime.SetFinalizer(&garbage{do}, collected)
}

// CollectLess makes garbage collections a third as frequent within the same memory limit, unless GOGC is set. It is for
// commands with many appends: an append leaves garbage and little live memory. Collecting it cost a tenth of the time
// of appends, and a sixth of an import.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}

// WorkBesideSyncs runs Go on one thread more than there are processors, unless GOMAXPROCS is set. It is for commands
// that compute while they wait for the disk: a thread in a sync blocks its processor for milliseconds.
func WorkBesideSyncs() {
	if os.Getenv("GOMAXPROCS") == "" {
		oneMore()
	}
}

var oneMore = sync.OnceFunc(func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) })
