package errata_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
)

func TestPanelPrompts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		record := func(t *testing.T, prompt string, want bool) {
			t.Helper()
			added, err := errata.PromptsOf(st).Record(t.Context(), prompt)
			if err != nil || added != want {
				t.Errorf("record %q: %v, %v", prompt, added, err)
			}
		}
		t.Run("E-08 newest first, global, oldest first in the log", func(t *testing.T) {
			record(t, "one", true)
			record(t, "<two> & \u2028", true)
			list, err := errata.PromptsOf(st).List(t.Context())
			must(t, err)
			wantEqual(t, "prompts", list, []string{"<two> & \u2028", "one"})
			state, err := errata.Of(st, errata.PromptsSession).Load(t.Context(), "")
			must(t, err)
			raw := state.Threads.Turns(errata.PromptsSession)
			if len(raw) != 2 || string(raw[1].Raw) != `"\u003ctwo\u003e \u0026 \u2028"` || state.Ledger.Kind != events.KindPrompts {
				t.Errorf("%+v, kind %s", raw, state.Ledger.Kind)
			}
		})
		t.Run("E-09 only consecutive duplicates are refused", func(t *testing.T) {
			record(t, "x", true)
			record(t, "x", false)
			record(t, "y", true)
			record(t, "x", true)
			record(t, "\xff", true)
			record(t, "\xff", false)
		})
		t.Run("E-10 also between concurrent writers", func(t *testing.T) {
			var added atomic.Int32
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					ok, err := errata.PromptsOf(st).Record(t.Context(), "same")
					if err != nil {
						t.Error(err)
					}
					if ok {
						added.Add(1)
					}
				})
			}
			group.Wait()
			if added.Load() != 1 {
				t.Errorf("%d writers added the same prompt, want one", added.Load())
			}
			for i := range 4 {
				group.Go(func() { record(t, fmt.Sprint("p", i), true) })
			}
			group.Wait()
			list, err := errata.PromptsOf(st).List(t.Context())
			must(t, err)
			for i, p := range list[1:] {
				if p == list[i] {
					t.Errorf("the prompt %q occurs twice in a row", p)
				}
			}
		})
	})
}
