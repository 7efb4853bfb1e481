package flow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

const release = `{
  "title": "Release",
  "initial": "build",
  "recovery": "restart",
  "states": {
    "build":  {"to": ["test"]},
    "test":   {"to": ["build", "ship"], "flow": "suite", "recovery": {"state": "triage"}},
    "triage": {"to": ["build", "given up"], "recovery": "fail", "description": "a person looks"},
    "ship":   {"to": ["shipped"], "recovery": {"restart": 5}},
    "shipped": {"end": true},
    "given up": {"end": true, "title": "Given up"}
  }
}`

func TestParse(t *testing.T) {
	got, err := flow.Parse([]byte(release))
	if err != nil {
		t.Fatal(err)
	}
	want := []flow.State{
		{Name: "build", To: []string{"test"}, Recovery: "restart", Attempts: 3},
		{Name: "test", To: []string{"build", "ship"}, Flow: "suite", Recovery: "state", RecoverTo: "triage"},
		{Name: "triage", Description: "a person looks", To: []string{"build", "given up"}, Recovery: "fail"},
		{Name: "ship", To: []string{"shipped"}, Recovery: "restart", Attempts: 5},
		{Name: "shipped", End: true},
		{Name: "given up", Title: "Given up", End: true},
	}
	if diff := cmp.Diff(want, got.States); diff != "" {
		t.Error(diff)
	}
	if got.Title != "Release" || got.Initial != "build" || got.State("ship") != &got.States[3] || got.State("x") != nil {
		t.Errorf("the machine is %+v", got)
	}
}

// The state in which all others recover does not have that rule itself.
func TestRecoverInOne(t *testing.T) {
	got, err := flow.Parse([]byte(`{"initial":"a","recovery":{"state":"b"},"states":{"a":{"to":["z"]},"b":{"to":["a"]},"z":{"end":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.State("a"), got.State("b"); a.RecoverTo != "b" || b.Recovery != flow.RuleFail || b.RecoverTo != "" {
		t.Errorf("a is %+v, b is %+v", a, b)
	}
}

// A template that cannot work is refused with the position and the reason.
func TestRefusals(t *testing.T) {
	states := func(text string) string { return "{\"initial\": \"a\",\n\"states\": {\n" + text + "\n}}" }
	end := `"z": {"end": true}`
	for name, x := range map[string]struct{ data, field, reason string }{
		"no JSON":             {"{\n\"initial\": }", "data", "line 2: "},
		"empty":               {"", "data", "line 1: "},
		"bytes":               {"{\"initial\": \"\xff\"}", "data", "line 1: "},
		"no object":           {"[]", "data", "line 1: want an object, have an array"},
		"no states":           {`{"initial": "a"}`, "data", "line 1: no states"},
		"states no object":    {`{"initial": "a", "states": []}`, "data/states", "line 1: want an object"},
		"no initial state":    {"{\"states\": {" + end + "}}", "data", "line 1: no initial state"},
		"initial is unknown":  {"{\n\"initial\": \"b\", \"states\": {" + end + "}}", "data/initial", `line 2: there is no state "b"`},
		"initial no string":   {`{"initial": 1}`, "data/initial", "line 1: want a string"},
		"unknown member":      {`{"inital": "a"}`, "data", `line 1: "inital" is no member of a workflow`},
		"unknown of a state":  {states(`"a": {"recovry": "fail"},` + end), "data/states/a", `line 3: "recovry" is no member of a state`},
		"twice":               {states(`"a": {"to": ["z"]},` + "\n" + `"a": {"to": ["z"]},` + end), "data/states", "line 2: "},
		"no name":             {states(`"": {"to": ["z"]},` + end), "data/states", "line 2: the name of a state has 1 to 256 bytes, not 0"},
		"long name":           {states(`"` + strings.Repeat("n", 257) + `": {"to": ["z"]},` + end), "data/states", "line 2: the name of a state has 1 to 256 bytes, not 257"},
		"unknown target":      {states(`"a": {"to": ["z",` + "\n" + `"b"]},` + end), "data/states/a/to/1", `line 4: there is no state "b"`},
		"target twice":        {states(`"a": {"to": ["z", "z"]},` + end), "data/states/a/to/1", `line 3: "z" is there twice`},
		"no list":             {states(`"a": {"to": "z"},` + end), "data/states/a/to", "line 3: want a list of states"},
		"no way out":          {states(`"a": {"to": []},` + end), "data/states/a", "line 3: no way out"},
		"no end":              {states(`"a": {"to": ["b"]}, "b": {"to": ["a"]}`), "data/states", "line 2: no state is an end"},
		"end is false":        {states(`"a": {"to": ["z"], "end": false},` + end), "data/states/a/end", "line 3: want true"},
		"an end leads on":     {states(`"a": {"to": ["z"]}, "z": {"end": true, "to": ["a"]}`), "data/states/z/to", `line 3: an end has no "to"`},
		"an end with a flow":  {states(`"a": {"to": ["z"]}, "z": {"flow": "x", "end": true}`), "data/states/z/flow", `line 3: an end has no "flow"`},
		"unreachable":         {states(`"a": {"to": ["z"]},` + "\n" + `"b": {"to": ["z"]},` + end), "data/states/b", `line 4: nothing leads here from "a"`},
		"several":             {states(`"a": {"to": ["z"]}, "b": {"to": ["c"]}, "c": {"to": ["z"]},` + end), "data/states/b", `line 3: nothing leads here from "a" (and 1 more)`},
		"circle":              {states(`"a": {"to": ["b", "z"]}, "b": {"to": ["c"]},` + "\n" + `"c": {"to": ["b"]},` + end), "data/states/b", "line 3: no way from here to an end: a circle without an exit (and 1 more)"},
		"exit by failure":     {states(`"a": {"to": ["b", "z"]}, "b": {"to": ["b"], "recovery": {"state": "z"}},` + end), "data/states/b", "line 3: no way from here to an end"},
		"recovery unknown":    {states(`"a": {"to": ["z"], "recovery": {"state": "b"}},` + end), "data/states/a/recovery", `line 3: there is no state "b"`},
		"recovery is a word":  {states(`"a": {"to": ["z"], "recovery": "retry"},` + end), "data/states/a/recovery", "line 3: want \"restart\""},
		"recovery is two":     {states(`"a": {"to": ["z"], "recovery": {"state": "z", "restart": 2}},` + end), "data/states/a/recovery", "line 3: want \"restart\""},
		"restart never":       {states(`"a": {"to": ["z"], "recovery": {"restart": 0}},` + end), "data/states/a/recovery/restart", "line 3: want how often"},
		"restart in part":     {states(`"a": {"to": ["z"], "recovery": {"restart": 1.5}},` + end), "data/states/a/recovery/restart", "line 3: want how often"},
		"recovery of itself":  {states(`"a": {"to": ["z"], "recovery": {"state": "a"}},` + end), "data/states/a/recovery", `line 3: recovery of "a" leads back to it`},
		"recovery circle":     {states(`"a": {"to": ["b", "z"], "recovery": {"state": "b"}}, "b": {"to": ["z"], "recovery": {"state": "a"}},` + end), "data/states/", "leads back to it"},
		"default is unknown":  {"{\"recovery\": {\"state\": \"b\"},\n" + states(`"a": {"to": ["z"]},` + end)[1:], "data/states/a", `line 4: there is no state "b"`},
		"flow without a name": {states(`"a": {"to": ["z"], "flow": ""},` + end), "data/states/a/flow", "line 3: the id of a workflow has 1 to 512 bytes, not 0"},
		"controls":            {states(`"a": {"to": ["z"]}, "\u001b[2J": {"to": ["z"]},` + end), `data/states/\x1b[2J`, "line 3: nothing leads here"},
		"slashes":             {states(`"a": {"to": ["z"]}, "b/~": {"to": ["z"]},` + end), `data/states/b~1~0`, "line 3: nothing leads here"},
	} {
		t.Run("D-69 "+name, func(t *testing.T) {
			_, err := flow.Parse([]byte(x.data))
			e, ok := errors.AsType[*events.InvalidError](err)
			if !ok || !strings.HasPrefix(e.Field, x.field) || !strings.HasSuffix(x.field, "/") && e.Field != x.field || !strings.Contains(e.Reason, x.reason) {
				t.Errorf("got %v, want %s: %s", err, x.field, x.reason)
			}
		})
	}
}

// ring returns a template of n states. Each leads to the next one, and the last one to the given state.
func ring(n int, last string) []byte {
	var b strings.Builder
	b.WriteString(`{"initial":"s0","states":{`)
	for i := range n - 1 {
		fmt.Fprintf(&b, "\"s%d\":{\"to\":[\"s%d\"]},\n", i, i+1)
	}
	fmt.Fprintf(&b, `"s%d":{"to":[%q]},"z":{"end":true}}}`, n-1, last)
	return []byte(b.String())
}

// A hundred thousand states are checked in linear time.
func TestLarge(t *testing.T) {
	began := time.Now()
	if w, err := flow.Parse(ring(100_000, "z")); err != nil || len(w.States) != 100_001 || len(w.Reachable("s0")) != 100_000 {
		t.Errorf("parse a chain of states: %v", err)
	}
	_, err := flow.Parse(ring(100_000, "s1"))
	if err == nil || !strings.Contains(err.Error(), "data/states/z: line 100000: nothing leads here from \"s0\"") {
		t.Errorf("parse a ring of states: %v", err)
	}
	var wide strings.Builder // each state leads to many
	for i := range 1000 {
		fmt.Fprintf(&wide, `,"s%d":{"to":["z"`, i)
		for j := range 500 {
			fmt.Fprintf(&wide, `,"s%d"`, (i+j)%1000)
		}
		wide.WriteString("]}")
	}
	if _, err := flow.Parse([]byte(`{"initial":"s0","states":{"z":{"end":true}` + wide.String() + "}}")); err != nil {
		t.Errorf("parse a mesh of states: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second { // quadratic would take minutes
		t.Errorf("parsing took %v", took)
	}
}

// Any input is refused with a position in it, or is a machine that works: every state can be reached, and reaches an
// end.
func FuzzParse(f *testing.F) {
	f.Add([]byte(release))
	f.Add(ring(5, "z"))
	f.Add([]byte(`{"initial":"a","states":{"a":{"to":["a","z"],"recovery":{"state":"z"}},"z":{"end":true}}}`))
	f.Add([]byte("{\"initial\":\"\\ud800\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := flow.Parse(data)
		if err != nil {
			if e, ok := errors.AsType[*events.InvalidError](err); !ok || !strings.HasPrefix(e.Field, "data") || !strings.HasPrefix(e.Reason, "line ") {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if len(w.States) > 100 {
			return
		}
		reached := map[string]bool{w.Initial: true}
		for range w.States { // by brute force
			for _, s := range w.States {
				if reached[s.Name] {
					for _, to := range append(s.To, s.RecoverTo) {
						reached[to] = true
					}
				}
			}
		}
		for _, s := range w.States {
			ends := s.End
			for to := range w.Reachable(s.Name) {
				if w.State(to) == nil {
					t.Fatalf("%q leads to the unknown state %q", s.Name, to)
				}
				ends = ends || w.State(to).End
			}
			if !ends || !reached[s.Name] || s.End != (s.Recovery == "") {
				t.Fatalf("%q: reached %v, an end is %v, recovery %q", s.Name, reached[s.Name], ends, s.Recovery)
			}
		}
	})
}
