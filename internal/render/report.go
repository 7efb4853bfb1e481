package render

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Report is the result of an evaluation, in either of its two formats.
type Report struct {
	Steps int // judged steps; -1 if unknown
	Evals []Eval
}

// Eval is the summary of one evaluation in a report.
type Eval struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind,omitempty"` // singleTurn, multiTurn or scorer
	Pass    int      `json:"pass"`
	Fail    int      `json:"fail"`
	Unknown int      `json:"unknown"`
	Score   string   `json:"score,omitempty"`    // mean of the scores, with two decimals
	Passes  string   `json:"passesIf,omitempty"` // rule for a pass
	Failed  []string `json:"failed,omitempty"`   // turns that failed as #n, or ids of targets

	sum   float64
	count int
}

// ReportOf reads a result. ok is false if the result is not an evaluation.
func ReportOf(raw events.Raw) (r Report, ok bool) {
	members, err := rawjson.Object(raw)
	if err != nil {
		return r, false
	}
	r.Steps = -1
	if targets, has := members.Get("perTargetResults"); has {
		return r, r.targets(members, targets)
	}
	raw, _ = members.Get("result")
	result, err := rawjson.Object(raw)
	if err != nil {
		return r, false
	}
	if n, err := strconv.Atoi(result.Compact("stepCount")); err == nil {
		r.Steps = n
	}
	definitions := members.Object("defs").Object("evals")
	for _, group := range []string{"singleTurn", "multiTurn", "scorers"} {
		for _, e := range result.Object(group) {
			r.Evals = append(r.Evals, evalOf(group, e, definitions.Object(e.Name)))
		}
	}
	return r, true
}

// evalOf reads one evaluation: a series by step, or a single result.
func evalOf(group string, member rawjson.Member, definition rawjson.Members) Eval {
	e := Eval{Name: member.Name, Kind: map[string]string{"scorers": "scorer"}[group], Passes: rule(definition)}
	if e.Kind == "" {
		e.Kind = group
	}
	body, err := rawjson.Object(member.Value)
	if err != nil {
		return e
	}
	single := body
	if inner := body.Object("series"); inner != nil {
		body = inner
	} else if inner := body.Object("result"); inner != nil {
		single = inner
	}
	raw, _ := body.Get("byStepIndex")
	series, err := rawjson.Array(raw)
	if err != nil {
		e.take("", single)
	}
	for i, step := range series {
		if record, err := rawjson.Object(step); err == nil { // null: the step was not evaluated
			e.take(fmt.Sprintf("#%d", i+1), record)
		}
	}
	e.mean()
	return e
}

// take counts one result.
func (e *Eval) take(where string, record rawjson.Members) {
	outcome := record.Object("outcome")
	measurement := record.Object("measurement")
	e.verdict(where, outcome.Text("verdict"))
	e.score(measurement.Compact("score"))
}

func (e *Eval) verdict(where, verdict string) {
	switch verdict {
	case "pass":
		e.Pass++
	case "fail":
		e.Fail++
		if where != "" {
			e.Failed = append(e.Failed, where)
		}
	case "unknown":
		e.Unknown++
	}
}

func (e *Eval) score(number string) {
	if x, err := strconv.ParseFloat(number, 64); err == nil && math.Abs(x) < 1e6 {
		e.sum += x
		e.count++
	}
}

func (e *Eval) mean() {
	if e.count > 0 {
		e.Score = strconv.FormatFloat(e.sum/float64(e.count), 'f', 2, 64)
	}
}

// rule returns the rule for a pass as text.
func rule(definition rawjson.Members) string {
	policy := definition.Object("verdict")
	switch kind := policy.Text("kind"); {
	case kind == "number" && policy.Text("type") == "threshold":
		return ">= " + policy.Compact("passAt")
	case kind == "number":
		low, high := policy.Compact("min"), policy.Compact("max")
		switch {
		case low == "":
			return "<= " + high
		case high == "":
			return ">= " + low
		}
		return low + " to " + high
	case kind == "boolean":
		return "is " + policy.Compact("passWhen")
	case kind == "ordinal":
		return "in " + policy.Compact("passWhenIn")
	case kind == "custom":
		return "custom"
	}
	return ""
}

// targets reads the older format: results by target, with a verdict for each evaluation.
func (r *Report) targets(report rawjson.Members, raw events.Raw) bool {
	list, err := rawjson.Array(raw)
	if err != nil {
		return false
	}
	summaries := report.Object("evalSummaries")
	at := make(map[string]int)
	for _, s := range summaries {
		at[s.Name] = len(r.Evals)
		summary, _ := rawjson.Object(s.Value)
		r.Evals = append(r.Evals, Eval{Name: s.Name, Kind: summary.Text("evalKind")})
	}
	for _, t := range list {
		target, err := rawjson.Object(t)
		if err != nil {
			continue
		}
		verdicts := target.Object("verdicts")
		for _, v := range verdicts {
			if _, known := at[v.Name]; !known {
				at[v.Name] = len(r.Evals)
				r.Evals = append(r.Evals, Eval{Name: v.Name})
			}
			e := &r.Evals[at[v.Name]]
			record, _ := rawjson.Object(v.Value)
			e.verdict(target.Text("targetId"), record.Text("verdict"))
			e.score(record.Compact("score"))
		}
	}
	for i := range r.Evals {
		r.Evals[i].mean()
	}
	return true
}
