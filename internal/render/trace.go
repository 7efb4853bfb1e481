package render

import (
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Trace describes how a turn of a simulation was chosen, and how the simulation ended if it ended there.
type Trace struct {
	TurnIndex  string // as spelled; "" if missing
	StepID     string // "": no step was chosen
	Method     string
	Candidates []Candidate
	End        *End

	Selection, RawEnd events.Raw // as stored; nil if missing
}

// Candidate is a step that was considered.
type Candidate struct {
	StepID  string
	Score   string // as spelled
	Reasons []string
}

// End describes how a simulation ended.
type End struct {
	Reason    string
	Completed bool
	Summary   string
}

// TraceOf reads a step trace, either by itself or in the metadata of a step. ok is false if the turn has none.
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

// texts returns the strings of an array, or nil if the member is not an array of strings.
func texts(m rawjson.Members, name string) []string {
	raw, _ := m.Get(name)
	var list []string
	if rawjson.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// Goal returns the goal and the persona of a trajectory, from its definition or from a run. A missing value is "".
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
