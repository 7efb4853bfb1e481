package tally_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log/memlog"
)

func TestOverContexts(t *testing.T) {
	t.Run("net T4 a context that is over ends every loop of tries", func(t *testing.T) {
		for name, call := range docCalls {
			if name == "foreign" || name == "save" || name == "again" || name == "same" || name == "anew" || name == "txRefuses" {
				continue // they expect nothing
			}
			for _, at := range []int{1, 2, 3} {
				synctest.Test(t, func(t *testing.T) {
					mem := sharedMem{memlog.New(memlog.Config{})}
					other := on(t, mem, tally.Config{})
					ctx, cancel := context.WithCancel(t.Context())
					var base events.Offset
					tries, over := 0, false
					var ended time.Time
					st := on(t, &stepped{mem, func(call string) {
						if call != "publish" && base > 0 && tries == at && !over {
							over, ended = true, time.Now()
							cancel()
						}
						if call != "publish" || base == 0 {
							return
						}
						if over && !t.Failed() {
							t.Errorf("%s: another try after the context ended", name)
						}
						if err := docCalls["foreign"](t.Context(), other, 0); err != nil { // a record that changes nothing
							t.Error(err)
						}
						tries++
					}, false}, tally.Config{})
					if base = 1; name != "create" {
						base = 0
						mustSave(t, st.Documents(), "doc", "b", text("b"))
						base = mustSave(t, st.Documents(), "doc", "a", text("a")).Offset
					}
					if err := call(ctx, st, base); err == nil {
						t.Errorf("%s: no error", name)
					}
					if !over || time.Since(ended) > 0 {
						t.Errorf("%s: ended %v after its context, in %d tries", name, time.Since(ended), tries)
					}
					st.Close()
					other.Close()
				})
			}
		}
	})
	t.Run("net T4 a transaction that comes to nothing leaves no record", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st := on(t, mem, tally.Config{})
		d := st.Documents()
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			head := func() events.Offset {
				at, err := st.Log.Head(ctx)
				if err != nil {
					rt.Fatal(err)
				}
				return at
			}
			isThere := make(map[string]bool)
			for i := range 2 {
				id := fmt.Sprint(i)
				if isThere[id] = rapid.Bool().Draw(rt, "is there"); isThere[id] {
					second(d.Save(ctx, "t4", id, text("x")))
				} else {
					second(d.Delete(ctx, "t4", id, 0, ""))
				}
			}
			before, wrong := head(), errors.New("wrong")
			fails := rapid.IntRange(0, 3).Draw(rt, "fails") == 0
			changed := make(map[string]bool)
			err := d.Tx(ctx, func(tx *tally.Tx) error {
				changed = make(map[string]bool)
				now := make(map[string]bool)
				for id, is := range isThere {
					now[id] = is
				}
				for range rapid.IntRange(0, 9).Draw(rt, "steps") {
					id := fmt.Sprint(rapid.IntRange(0, 1).Draw(rt, "document"))
					var err error
					switch rapid.IntRange(0, 5).Draw(rt, "step") {
					case 0:
						_, err = tx.Read(ctx, "t4", id)
					case 1, 2:
						if err = tx.Create(ctx, "t4", id, text("new")); err == nil {
							now[id], changed[id] = true, true
						}
					case 3:
						if err = tx.Update(ctx, "t4", id, text("newer")); err == nil {
							changed[id] = true
						}
					default:
						if err = tx.Delete(ctx, "t4", id, ""); err == nil {
							now[id], changed[id] = false, isThere[id]
						}
					}
					if err != nil && !errors.Is(err, tally.ErrExists) && !errors.Is(err, tally.ErrNotFound) {
						return err
					}
				}
				if rapid.Bool().Draw(rt, "one for nothing") {
					if err := errors.Join(tx.Create(ctx, "t4", "new", text("new")), tx.Delete(ctx, "t4", "new", "")); err != nil {
						return err
					}
				}
				if fails {
					return wrong
				}
				return nil
			})
			if fails != errors.Is(err, wrong) || !fails && err != nil {
				rt.Fatal(err)
			}
			want := before
			for _, is := range changed {
				if is && !fails {
					want++
				}
			}
			if have := head(); have != want {
				rt.Errorf("the log has %d records more, want %d", have-before, want-before)
			}
		})
	})
}
