package shapes_test

import (
	"testing"

	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
)

// Looking for a member that is missing, or of another kind, allocates nothing: shapes look for many members that a turn
// does not have.
func TestMissingMembersAllocateNothing(t *testing.T) {
	testkit.NotUnderRace(t)
	o, ok := shapes.Open("", []byte(`{"role":"user","content":"text","n":1}`))
	if !ok {
		t.Fatal("cannot open the turn")
	}
	members := rawjson.Members{{Name: "n", Value: []byte("1")}, {Name: "s", Value: []byte(`"text"`)}}
	for name, look := range map[string]func() bool{
		"Word":           func() bool { return o.Word("absent")+o.Word("n") == "" },
		"Text":           func() bool { return o.Text("absent", "n") == "" },
		"Elements":       func() bool { _, a := o.Elements("absent"); _, b := o.Elements("content"); return !a && !b },
		"Object":         func() bool { _, a := o.Object("absent", "content"); return !a },
		"IsObject":       func() bool { return !o.IsObject("absent") && !o.IsObject("content") },
		"Open":           func() bool { _, ok := shapes.Open("", o.Peek("content")); return !ok },
		"Members.Text":   func() bool { return members.Text("absent", "n") == "" },
		"Members.Object": func() bool { return members.Object("absent") == nil && members.Object("s") == nil },
	} {
		if !look() {
			t.Errorf("%s finds a member that is missing or of another kind", name)
		}
		if n := testing.AllocsPerRun(100, func() { look() }); n > 0 {
			t.Errorf("%s: got %v allocations, want none", name, n)
		}
	}
}
