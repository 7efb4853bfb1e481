package perstack_test

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// What the functions remember of a store goes with it, and is bounded.
func TestRemembered(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	before := perstack.Remembered()
	use := func(in *tally.Store) {
		for i := range perstack.MaxMemories + 3 {
			c := checkpoint(fmt.Sprint("j", i), "r", "c", 1, messages(0, 1))
			must(t, perstack.DefaultStoreCheckpoint(t.Context(), in, c))
		}
		need(perstack.DefaultRetrieveCheckpoint(t.Context(), in, "j0", "c")) // which was forgotten
	}
	use(need(st.In("other")))
	if n := perstack.Remembered(); n <= before {
		t.Fatalf("%d stores are remembered", n)
	}
	for deadline := time.Now().Add(10 * time.Second); perstack.Remembered() > before; {
		if time.Now().After(deadline) {
			t.Fatal("a store that is gone is remembered")
		}
		debug.FreeOSMemory() // which collects
	}
}
