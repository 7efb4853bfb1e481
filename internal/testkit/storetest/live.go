package storetest

import (
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/layouts"
)

// Live opens the store in a directory, "" for one in memory, in a process that keeps trees of a layout. end closes it,
// at the latest with the test.
func Live(t testing.TB, dir string, layout layouts.Layout) (st *tally.Store, end func()) {
	t.Helper()
	o := embedded.Options{ConfigDir: t.TempDir(), Backend: "memory", Trees: func(name string) (layouts.Layout, bool) { return layout, name == layout.Name() }}
	if dir != "" {
		o.Backend, o.Store = "local", dir
	}
	st, err := embedded.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(end)
	return st, end
}
