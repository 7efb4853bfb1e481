package agents_test

import (
	"encoding/json"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// Fit adapts a list of three turns, of which the second was replaced, to logs with more and with fewer turns.
func TestFit(t *testing.T) {
	items := []events.Item{{Keep: &[2]int{0, 1}}, {Turn: events.Raw(`"new"`)}, {Keep: &[2]int{2, 3}}}
	fact := agents.Fact{Had: 3, Payload: &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: items}}, Others: "keep", Reason: "source"}}
	for live, want := range map[int]string{
		3: `[{"keep":[0,1]},{"turn":"new"},{"keep":[2,3]}]`,
		5: `[{"keep":[0,3]},{"turn":"new"},{"keep":[4,5]}]`,
		2: `[{"turn":"new"},{"keep":[1,2]}]`,
		0: `[{"turn":"new"}]`,
	} {
		p := fact.Fit(live).(*events.ThreadReplaced)
		if got, err := json.Marshal(p.Threads["main"].Items); err != nil || tidy(got) != want {
			t.Errorf("%d live turns: %s, want %s", live, tidy(got), want)
		}
	}
	fact.Had = agents.Whole
	if got := fact.Fit(7); got != fact.Payload {
		t.Errorf("a list that is replaced whole was fitted: %+v", got)
	}
	if rewound := (agents.Fact{Payload: &events.SessionRewound{}}); rewound.Fit(7) != rewound.Payload {
		t.Error("a rewind was fitted")
	}
}

// tidy returns JSON with only the members that identify an item.
func tidy(raw []byte) string {
	var list []struct {
		Keep *[2]int         `json:"keep,omitempty"`
		Turn json.RawMessage `json:"turn,omitempty"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err.Error()
	}
	out, _ := json.Marshal(list)
	return string(out)
}
