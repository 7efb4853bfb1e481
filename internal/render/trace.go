package render

import (
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Trace is how one turn of a simulation was chosen, and how the simulation ended
// if it did there.
type Trace struct {
	TurnIndex  string // as it is spelled; "" if it is not said
	StepID     string // "": no step was chosen
	Method     string
	Candidates []Candidate
	End        *End

	Selection, RawEnd events.Raw // as they stand there; nil if they do not
}

// Candidate is a step that could have been chosen.
type Candidate struct {
	StepID  string
	Score   string // as it is spelled
	Reasons []string
}

// End is how a simulation ended.
type End struct {
	Reason    string
	Completed bool
	Summary   string
}

// TraceOf reads a step trace, or the same from the metadata of a step. ok is
// false for a turn that says nothing of it.
func TraceOf(raw []byte) (t Trace, ok bool) {
	members, err := rawjson.Object(raw)
	if err != nil {
		return t, false
	}
	if meta, has := members.Get("metadata"); has {
		if inside, err := rawjson.Object(meta); err == nil {
			if _, has := inside.Get("selection"); has {
				members = inside
			}
		}
	}
	selection, ok := members.Get("selection")
	if !ok {
		return t, false
	}
	t.Selection = selection
	t.TurnIndex, t.StepID = members.Compact("turnIndex", "originalTurnIndex"), members.Text("stepId")
	if chosen, err := rawjson.Object(selection); err == nil {
		t.Method = chosen.Text("method")
		t.Candidates = candidates(chosen)
	}
	if raw, has := members.Get("end"); has {
		t.RawEnd = raw
		if end, err := rawjson.Object(raw); err == nil {
			t.End = &End{end.Text("reason"), end.Compact("completed") == "true", end.Text("summary")}
		}
	}
	return t, true
}

func candidates(selection rawjson.Members) []Candidate {
	raw, _ := selection.Get("candidates")
	elements, err := rawjson.Array(raw)
	if err != nil {
		return nil
	}
	var list []Candidate
	for _, e := range elements {
		members, err := rawjson.Object(e)
		if err != nil {
			continue
		}
		list = append(list, Candidate{members.Text("stepId"), members.Compact("score"), texts(members, "reasons")})
	}
	return list
}

// texts returns the texts of an array, nil if it is not one.
func texts(m rawjson.Members, name string) []string {
	raw, _ := m.Get(name)
	var list []string
	if rawjson.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// Goal returns the goal and the persona of a trajectory: of its definition, or of
// a run of it. "" stands for what it does not say.
func Goal(definition events.Raw) (goal, persona string) {
	members, err := rawjson.Object(definition)
	if err != nil {
		return "", ""
	}
	who := members.Object("persona")
	var parts []string
	for _, name := range []string{"name", "description"} {
		if s := who.Text(name); s != "" {
			parts = append(parts, s)
		}
	}
	return members.Text("goal"), strings.Join(parts, ": ")
}
