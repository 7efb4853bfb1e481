package events_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// An event has three turns: each subset of them is erased, then each other subset. Each turn is then as after the
// erasure of all of them, or as before.
func TestEraseTurns(t *testing.T) {
	sources := map[string]string{
		"X-15 entries of a batch": `{"entries":[{"thread":"main","turn":{"a":"SECRET0"},"id":"x"},{"thread":"b","turn":"SECRET1","meta":{"eol":"\n","x":"SECRET1"}},
 {"thread":"main","bytes":"U0VDUkVUMg==","timestamp":"2026-03-01T12:00:00Z"}],"threadMeta":{"b":{"keep":1}},"x":"kept"}`,
		"X-15 items of a replacement": `{"threads":{"z":{"items":[{"turn":{"a":"SECRET0"}},{"turn":"SECRET1"}],"meta":{"keep":1}},"a":{"items":[{"turn":"SECRET2"},{"keep":[0,1]}]}},"others":"keep","reason":"compact","strategy":"kept"}`,
	}
	for name, data := range sources {
		t.Run(name, func(t *testing.T) {
			typ := events.TypeTurnAppended
			if strings.Contains(name, "items") {
				typ = events.TypeThreadReplaced
			}
			e := ofType(typ, data)
			e.ContentType = events.ContentTypeJSON
			rapid.Check(t, func(t *rapid.T) {
				var gone []int
				now := e
				for range rapid.IntRange(1, 3).Draw(t, "times") {
					turns := rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 0, 3, rapid.ID).Draw(t, "turns")
					next, err := now.EraseTurns(receipt, turns)
					if err != nil {
						t.Fatal(err)
					}
					if stored(next) > stored(e) {
						t.Errorf("%d bytes, the event has %d", stored(next), stored(e))
					}
					now, gone = next, append(gone, turns...)
				}
				for i := range 3 {
					word := fmt.Sprint("SECRET", i)
					if i == 2 && typ == events.TypeTurnAppended {
						word = "U0VDUkVUMg=="
					}
					if strings.Contains(string(now.Data), word) == slices.Contains(gone, i) {
						t.Errorf("erased %v: %s", gone, now.Data)
					}
				}
				all := len(slices.Compact(slices.Sorted(slices.Values(gone)))) == 3
				if (now.Erased() != "") != (len(gone) > 0) || strings.Contains(string(now.Data), "kept") == all || !json.Valid(now.Data) {
					t.Errorf("erased %v: receipt %q, %s", gone, now.Erased(), now.Data)
				}
				left, want := mustErased(t, now), mustErased(t, e)
				if !left.Equal(want) {
					t.Errorf("the rest erased:\n%s, want\n%s", left.Data, want.Data)
				}
			})
		})
	}
	t.Run("X-15 no such turn", func(t *testing.T) {
		e := ofType(events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":1}]}`)
		for _, turns := range [][]int{{1}, {-1}} {
			if _, err := e.EraseTurns(receipt, turns); err == nil {
				t.Errorf("%v: no error", turns)
			}
		}
		if _, err := ofType(events.TypeCostAccrued, `{}`).EraseTurns(receipt, []int{0}); err == nil {
			t.Error("a cost has no turns, and there is no error")
		}
	})
}

func mustErased(t *rapid.T, e events.Event) events.Event {
	erased, err := e.Erase(receipt)
	if err != nil {
		t.Fatal(err)
	}
	return erased
}
