package evals_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// oddMetadata has values of a step's metadata: as the simulation writes them, and others.
var oddMetadata = map[string][]string{
	"originalTurnIndex": {"", "3", "4.0", "-1", "1e2", `"7"`, "null"},
	"stepId":            {"", `"greet"`, "null", "7", `""`, `{"a":1}`},
	"selection":         {"", `{"method":"start"}`, `{"method":"llm-ranked","candidates":[{"stepId":"a","score":0.50}]}`, `"manual"`, "null", "[]"},
	"end":               {"", `{"isFinal":true,"reason":"max-turns","completed":false}`, `"soon"`, "null"},
}

// plain reports whether a StepTrace can hold a value.
func plain(name, value string) bool {
	switch name {
	case "originalTurnIndex":
		return value == "" || value == "3" || value == "-1"
	case "stepId":
		return value == "" || value == "null" || strings.HasPrefix(value, `"`)
	case "selection":
		return value == "" || strings.HasPrefix(value, "{")
	}
	return value == "" || strings.HasPrefix(value, "{")
}

// The step traces of a program and those of the folder follow the same rule: they are equal, even for steps that no
// simulation writes. A value that a StepTrace cannot hold is an error that names it, never another value.
func TestTracesAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
		if err != nil {
			rt.Fatal(err)
		}
		st, err := tally.Open(t.Context(), l, tally.Config{Source: "urn:test"})
		if err != nil {
			rt.Fatal(err)
		}
		defer st.Close()
		c := evals.Of(st, "c")
		if _, err := c.SaveTrajectoryMeta(t.Context(), &evals.TrajectoryMeta{Version: 1, TrajectoryID: "c", CreatedAt: "2026-01-23T12:35:42.341Z", Goal: "g",
			Persona: evals.Persona{Description: "d"}}); err != nil {
			rt.Fatal(err)
		}
		bent := ""
		for i := range rapid.IntRange(1, 3).Draw(rt, "steps") {
			step, err := evals.NewStep(i, events.Raw(`{"role":"user","content":"<&>"}`), events.Raw(`{"role":"assistant","content":"a"}`))
			if err != nil {
				rt.Fatal(err)
			}
			var members []string
			for _, name := range []string{"originalTurnIndex", "stepId", "selection", "end"} {
				value := rapid.SampledFrom(oddMetadata[name]).Draw(rt, name)
				if value != "" {
					members = append(members, `"`+name+`":`+value)
				}
				if !plain(name, value) {
					bent = name
				}
			}
			if rapid.Bool().Draw(rt, "metadata") {
				if err := step.SetMetadata(events.Raw("{" + strings.Join(members, ",") + "}")); err != nil {
					rt.Fatal(err)
				}
			}
			if _, err := c.Append(t.Context(), step); err != nil {
				rt.Fatal(err)
			}
		}
		files, report := layouttest.Exported(t, st, tallydir.Layout{})
		if len(report.Problems) > 0 {
			rt.Fatalf("got the problems %v", report.Problems)
		}
		file := files["conversations/c/stepTraces.json"]
		traces, err := c.LoadTrajectoryStepTraces(t.Context())
		if invalid, ok := errors.AsType[*events.InvalidError](err); ok && bent != "" && strings.HasPrefix(invalid.Field, "[") {
			return
		}
		if err != nil {
			rt.Fatalf("got the error %v for metadata that a StepTrace can hold", err)
		}
		want, err := rawjson.Array(rawjson.AppendCompact(nil, []byte(file)))
		if err != nil || len(want) != len(traces) {
			rt.Fatalf("got %d traces, the file %s, error %v", len(traces), file, err)
		}
		for i, trace := range traces {
			raw, err := rawjson.Marshal(trace)
			if err != nil || string(raw) != string(want[i]) {
				rt.Fatalf("trace %d\nby the API    %s\nin the export %s\n%v", i, raw, want[i], err)
			}
		}
	})
}
