package render_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

func TestReport(t *testing.T) {
	artifact := `{"defs":{"evals":{"A":{"verdict":{"kind":"number","type":"threshold","passAt":2.50}},"B":{"verdict":{"kind":"boolean","passWhen":true}},"C":{"verdict":{"kind":"number","type":"range","min":0,"max":1}},"D":{"verdict":{"kind":"ordinal","passWhenIn":["x"]}}}},
		"result":{"stepCount":3,
		"singleTurn":{"A":{"byStepIndex":[{"measurement":{"score":1},"outcome":{"verdict":"pass"}},null,{"measurement":{"score":0.5},"outcome":{"verdict":"fail"}}]}},
		"multiTurn":{"B":{"measurement":{"score":0.7},"outcome":{"verdict":"unknown"}},"D":7},
		"scorers":{"C":{"shape":"seriesByStepIndex","series":{"byStepIndex":[{"measurement":{"score":1e-999999999},"outcome":{"verdict":"pass"}}]}},"E":{"shape":"scalar","result":{"measurement":{"score":0.25},"outcome":{"verdict":"fail"}}}}}}`
	r, ok := render.ReportOf(events.Raw(artifact))
	var have []string
	for _, e := range r.Evals {
		have = append(have, strings.Join([]string{e.Name, e.Kind, e.Passes, string(rune('0' + e.Pass)), string(rune('0' + e.Fail)), string(rune('0' + e.Unknown)), e.Score, strings.Join(e.Failed, " ")}, "|"))
	}
	want := []string{"A|singleTurn|>= 2.50|1|1|0|0.75|#3", "B|multiTurn|is true|0|0|1|0.70|", `D|multiTurn|in ["x"]|0|0|0||`, "C|scorer|0 to 1|1|0|0|0.00|", "E|scorer||0|1|0|0.25|"}
	if !ok || r.Steps != 3 || !reflect.DeepEqual(have, want) {
		t.Errorf("got %v with %d steps\n%q\nwant\n%q", ok, r.Steps, have, want)
	}
	for _, other := range []string{`{}`, `[]`, `{"result":7}`, `{"perTargetResults":{}}`, `"x"`} {
		if _, ok := render.ReportOf(events.Raw(other)); ok {
			t.Errorf("%s was read as a report", other)
		}
	}
}

// A stored trace and one that is derived from a step are equal.
func TestTraceOf(t *testing.T) {
	stored, ok := render.TraceOf([]byte(`{"turnIndex":4,"stepId":"s","selection":{"method":"llm-ranked","candidates":[{"stepId":"s","score":0.90,"reasons":["r"]},7]},"end":{"isFinal":true,"reason":"goal-reached","completed":true,"summary":"done"}}`))
	derived, ok2 := render.TraceOf([]byte(`{"input":{},"output":[],"metadata":{"originalTurnIndex":4,"stepId":"s","selection":{"method":"llm-ranked","candidates":[{"stepId":"s","score":0.90,"reasons":["r"]},7]},"end":{"isFinal":true,"reason":"goal-reached","completed":true,"summary":"done"}}}`))
	if !ok || !ok2 || !reflect.DeepEqual(stored, derived) {
		t.Errorf("the stored trace\n%+v\ndiffers from the derived one\n%+v", stored, derived)
	}
	if stored.TurnIndex != "4" || stored.Candidates[0].Score != "0.90" || stored.End.Summary != "done" || !stored.End.Completed {
		t.Errorf("the stored trace is %+v", stored)
	}
	for _, other := range []string{`{}`, `7`, `{"metadata":{}}`} {
		if _, ok := render.TraceOf([]byte(other)); ok {
			t.Errorf("%s was read as a trace", other)
		}
	}
}

// Each block of a message becomes a line. Unknown blocks are printed as JSON.
func TestMessagesWithBlocks(t *testing.T) {
	for raw, want := range map[string][]render.Line{
		`{"User":{"blocks":[]}}`: {{Role: "user", Text: "(nothing)"}},
		`{"Assistant":{"blocks":[{"Reasoning":{"text":"hm","signature":null}},{"ToolCall":{"id":"c","name":"f","args":{"a": 1.0}}},{"RedactedReasoning":{"data":"z"}}]}}`: {
			{Role: "assistant", Text: "(thinking) hm", Thought: true}, {Role: "call", Text: `f {"a":1.0}`}, {Role: "assistant", Text: "(thinking, withheld)", Thought: true}},
		`{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"blocks":[{"type":"text","text":"no"}],"is_error":true}}},{"Other":{}},7]}}`: {
			{Role: "result", Text: "error: no"}, {Role: "user", Text: `{"Other":{}}`}, {Role: "user", Text: "7"}},
	} {
		if have := render.Turn(projector.Turn{Raw: events.Raw(raw)}); !reflect.DeepEqual(have, want) {
			t.Errorf("%s: got %+v", raw, have)
		}
	}
}
