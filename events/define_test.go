package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
)

type vote struct {
	For string `json:"for"`
}

var voteCast = events.Define[vote]("com.acme.vote.cast.v2", events.WithThread).From("com.acme.vote.cast.v1", func(data []byte) ([]byte, error) {
	var old struct{ Choice string }
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	return json.Marshal(vote{old.Choice})
})

// countVotes is a fold of votes.
func countVotes(t *testing.T, evs []events.Event) map[string]int {
	t.Helper()
	count := make(map[string]int)
	for _, e := range evs {
		v, ok, err := voteCast.In(e)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			count[v.For]++
		}
	}
	return count
}

// An upcaster makes older events equal to new ones. Other events, and data that do not fit, are told apart.
func TestDefine(t *testing.T) {
	sub := events.Session("", "s")
	older := func(data string) events.Event {
		return events.Event{Type: "com.acme.vote.cast.v1", Subject: sub, Data: []byte(data)}
	}
	t.Run("X-08 mixed versions", func(t *testing.T) {
		var mixed, alone []events.Event
		for i := range 10 {
			choice := fmt.Sprint("c", i%3)
			e, err := voteCast.New(sub, vote{choice})
			if err != nil || e.Validate() == nil { // without id and source
				t.Fatalf("New: %v, %v", e, err)
			}
			alone = append(alone, e)
			if i%2 == 0 {
				e = older(fmt.Sprintf(`{"choice":%q}`, choice))
			}
			mixed = append(mixed, e, events.Event{Type: "com.acme.other.v1", Subject: sub, Data: []byte(`{"for":"c0"}`)})
		}
		if diff := cmp.Diff(countVotes(t, alone), countVotes(t, mixed)); diff != "" {
			t.Errorf("the fold of mixed versions differs (-v2 alone +mixed):\n%s", diff)
		}
	})
	for name, e := range map[string]events.Event{"v1": older(`7`), "v2": {Type: "com.acme.vote.cast.v2", Data: []byte(`{"for":7}`)}} {
		if v, ok, err := voteCast.In(e); ok || err == nil || v != (vote{}) {
			t.Errorf("%s with other data: got %v, %v, %v, want an error", name, v, ok, err)
		}
	}
	if _, err := events.Define[func()]("com.acme.x", events.InLedger).New(sub, nil); err == nil {
		t.Error("New of a value that is not JSON: got no error")
	}
	plain := events.Define[vote]("com.acme.vote.cast.v2", events.WithThread)
	plain.From("com.acme.vote.cast.v0", nil)
	if _, ok, err := plain.In(older(`{"choice":"a"}`)); ok || err != nil {
		t.Errorf("a type without upcaster reads an older event: %v, %v", ok, err)
	}
	err := error(&events.TypeError{Name: "com.acme.x", Field: "moves", Have: "thread", Want: "ledger"})
	if _, ok := errors.AsType[*events.TypeError](err); !ok || err.Error() != "type com.acme.x is registered with moves thread, not ledger: another meaning needs another name" {
		t.Errorf("got %v", err)
	}
}
