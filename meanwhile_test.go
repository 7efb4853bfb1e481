package tally_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/schedule"
	"github.com/tallylog/tally/log/memlog"
)

func TestMeanwhile(t *testing.T) {
	testkit.NotUnderRace(t) // one goroutine calls
	// begin returns two stores on one log, the first with steps, and the base of "a".
	begin := func(t *testing.T, few bool, reached func(string)) (st, other *tally.Store, base events.Offset) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st, other = on(t, &stepped{mem, reached, few}, tally.Config{}), on(t, mem, tally.Config{})
		if err := errors.Join(byRef(t.Context(), st, "a", "large content"), second(st.Documents().Save(t.Context(), "doc", "b", text("b")))); err != nil {
			t.Fatal(err)
		}
		a, err := st.Documents().Read(t.Context(), "doc", "a")
		if err != nil {
			t.Fatal(err)
		}
		return st, other, a.Offset
	}
	// inOrder returns the outcome of two calls one after the other.
	inOrder := func(t *testing.T, first, then string) (state string, firstErr, thenErr error) {
		st, other, base := begin(t, false, func(string) {})
		firstErr, thenErr = docCalls[first](t.Context(), st, base), docCalls[then](t.Context(), other, base)
		return stateOf(t, other, "a", "b", "c"), firstErr, thenErr
	}
	t.Run("net T3 a call of documents is as if before or behind whatever comes between its steps", func(t *testing.T) {
		calls := []string{"save", "update", "create", "delete", "rename", "purge", "link", "linkBack", "tx", "txBoth", "txRefuses"}
		acts := []string{"save", "update", "delete", "rename", "purge", "link", "linkBack", "txBoth", "again", "same", "anew", "foreign"}
		for _, call := range calls {
			for _, act := range acts {
				t.Run(call+" "+act, func(t *testing.T) {
					if call == "purge" && act == "purge" {
						return // each may complete what the other began
					}
					if call == "txRefuses" && act != "txBoth" && act != "save" {
						return // it writes nothing, so one document and both are enough
					}
					var possible []string
					state, callErr, actErr := inOrder(t, call, act)
					possible = append(possible, kindOf(callErr)+", "+kindOf(actErr)+"\n"+state)
					state, actErr, callErr = inOrder(t, act, call)
					possible = append(possible, kindOf(callErr)+", "+kindOf(actErr)+"\n"+state)
					for _, few := range []bool{false, true} {
						if few && (call == "rename" || act == "rename" || call == "linkBack" && act == "link" || call == "link" && act == "linkBack") { // needs a guard
							continue
						}
						schedule.Each(t, func(t *testing.T, points *schedule.Points) {
							st, other, base := begin(t, few, points.Reached)
							acted, actErr := false, error(nil)
							points.Do(func() { acted, actErr = true, docCalls[act](t.Context(), other, base) })
							callErr := docCalls[call](t.Context(), st, base)
							if !acted {
								actErr = docCalls[act](t.Context(), other, base)
							}
							have := kindOf(callErr) + ", " + kindOf(actErr) + "\n" + stateOf(t, other, "a", "b", "c")
							if !slices.Contains(possible, have) {
								t.Errorf("got\n%s\nwant as one after the other:\n%s\nor\n%s", have, possible[0], possible[1])
							}
						})
					}
				})
			}
		}
	})
}

// A parent cannot be guarded by the append itself on some servers.
func TestTxOnFewGuards(t *testing.T) {
	t.Run("net T3 a transaction on a server with few guards sees that a parent changed", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		other, isReady := on(t, mem, tally.Config{}), false
		st := on(t, &stepped{mem, func(call string) {
			if call == "publish" && isReady {
				isReady = false
				mustSave(t, other.Documents(), "doc", "a", refOf("b"))
			}
		}, true}, tally.Config{})
		mustSave(t, other.Documents(), "doc", "a", text("a"))
		mustSave(t, other.Documents(), "doc", "b", text("b"))
		isReady = true
		err := st.Documents().Tx(t.Context(), func(tx *tally.Tx) error { return tx.Save(t.Context(), "doc", "b", refOf("a")) })
		if !invalid(err) || isReady {
			t.Errorf("got %v, want that the parents would form a circle", err)
		}
	})
}

func TestLeaseMeanwhile(t *testing.T) {
	testkit.NotUnderRace(t) // one goroutine calls
	t.Run("net T3 a lease that changes hands at any step of a rename is as if before or behind it", func(t *testing.T) {
		schedule.Each(t, func(t *testing.T, points *schedule.Points) {
			mem := sharedMem{memlog.New(memlog.Config{})}
			st, other := on(t, &stepped{mem, points.Reached, false}, tally.Config{}), on(t, mem, tally.Config{})
			ctx, d := t.Context(), other.Documents()
			mustSave(t, d, "doc", "a", text("a"))
			if _, err := d.Lease(ctx, "doc", "a", "ann", time.Hour); err != nil {
				t.Fatal(err)
			}
			points.Do(func() {
				if err := d.Release(ctx, "doc", "a", "ann"); err != nil {
					t.Error(err)
				}
				if _, err := d.Lease(ctx, "doc", "a", "bob", time.Hour); err != nil {
					t.Error(err)
				}
			})
			if _, err := st.Documents().Rename(ctx, "doc", "a", 0, "b"); err != nil {
				t.Error(err)
			}
			a, errA := d.Holder(ctx, "doc", "a")
			b, errB := d.Holder(ctx, "doc", "b")
			possible := [][2]string{{"", "ann"}}
			if points.Acted() {
				possible = [][2]string{{"", "bob"}, {"bob", "ann"}} // bob was before the rename, or behind it
			}
			if err := errors.Join(errA, errB); err != nil || !slices.Contains(possible, [2]string{a.Holder, b.Holder}) {
				t.Errorf("the leases are of %q and %q, %v, want one of %q", a.Holder, b.Holder, err, possible)
			}
		})
	})
}
