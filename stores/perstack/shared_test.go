package perstack_test

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"
	"weak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// The cache of a store is bounded, and is freed with the store.
func TestRemembered(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	use := func(in *tally.Store) weak.Pointer[tally.Store] {
		for i := range perstack.MaxMemories + 3 {
			c := checkpoint(fmt.Sprint("j", i), "r", "c", 1, messages(0, 1))
			must(t, perstack.DefaultStoreCheckpoint(t.Context(), in, c))
		}
		need(perstack.DefaultRetrieveCheckpoint(t.Context(), in, "j0", "c")) // it was dropped from the cache
		if !perstack.Remembers(weak.Make(in)) {
			t.Fatal("a store in use has no cache")
		}
		return weak.Make(in)
	}
	used := use(need(st.In("other")))
	for deadline := time.Now().Add(5 * time.Minute); perstack.Remembers(used); {
		if time.Now().After(deadline) {
			t.Fatal("the cache of a freed store remains")
		}
		debug.FreeOSMemory() // runs a collection
	}
}
