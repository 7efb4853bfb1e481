package evals_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/evals"
)

// zeroOf returns the zero value of a type as a JSON member.
func zeroOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[events.Raw]():
		return "null"
	case t == reflect.TypeFor[*events.Fields](), t.Kind() == reflect.Map, t.Kind() == reflect.Struct:
		return "{}"
	case t.Kind() == reflect.Pointer:
		return zeroOf(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]"
	case t.Kind() == reflect.String:
		return `""`
	case t.Kind() == reflect.Bool:
		return "false"
	}
	return "0"
}

// An object with members of value zero keeps them when it is read as any of the types.
func TestMembersOfZero(t *testing.T) {
	t.Run("B-45 typed values keep members that say zero", func(t *testing.T) {
		random := rand.New(rand.NewPCG(45, 3))
		for _, v := range []any{new(evals.Report), new(evals.TargetResult), new(evals.RawMetric), new(evals.DerivedMetric), new(evals.ReportedVerdict), new(evals.AggregateSummary),
			new(evals.ReportedEval), new(evals.Artifact), new(evals.RunArtifacts), new(evals.MetricDef), new(evals.MetricLLM), new(evals.MetricPrompt), new(evals.Aggregator),
			new(evals.Def), new(evals.VerdictPolicy), new(evals.ScorerDef), new(evals.ScorerInput), new(evals.Combine), new(evals.Series), new(evals.Result), new(evals.Measurement),
			new(evals.Outcome), new(evals.Observed), new(evals.ScorerResult), new(evals.RunSummary), new(evals.RunAggregations), new(evals.StepTrace), new(evals.Selection),
			new(evals.Candidate), new(evals.TraceEnd), new(evals.TrajectoryMeta), new(evals.Persona), new(evals.LoopDetection), new(evals.StepGraph), new(evals.TrajectoryRunMeta)} {
			typ := reflect.TypeOf(v).Elem()
			for range testkit.Times(20) {
				var members []string
				for i := range typ.NumField() {
					name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
					if ft := typ.Field(i).Type; ft.Kind() == reflect.Pointer && ft.Elem().Kind() == reflect.Struct {
						continue // a type of its own
					}
					if strings.Contains(options, "omit") && random.IntN(2) == 0 {
						members = append(members, fmt.Sprintf("%q:%s", name, zeroOf(typ.Field(i).Type)))
					}
				}
				raw := "{" + strings.Join(append(members, `"later":null`), ",") + "}"
				fresh := reflect.New(typ).Interface()
				if err := rawjson.Unmarshal([]byte(raw), fresh); err != nil {
					t.Fatalf("%s: %s: %v", typ, raw, err)
				}
				var had, have map[string]any
				out := need(rawjson.Marshal(fresh))
				if err := json.Unmarshal([]byte(raw), &had); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(out, &have); err != nil {
					t.Fatal(err)
				}
				for i := range typ.NumField() { // the required members
					if name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); !strings.Contains(options, "omit") {
						delete(have, name)
					}
				}
				if diff := cmp.Diff(had, have); diff != "" {
					t.Fatalf("%s: %s became %s: %s", typ, raw, out, diff)
				}
			}
		}
	})
}
