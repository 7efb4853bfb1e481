package evals

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// RunResult is a result of a run: its bytes, with typed views.
type RunResult struct {
	Type RunType
	Raw  events.Raw // byte for byte
}

// IsReport reports whether an evaluation is an older EvaluationReport.
func (r *RunResult) IsReport() bool { return r.Type == TallyRun && isReport(r.Raw) }

// Artifact returns the typed view of an evaluation. If it does not fit, the error is *events.InvalidError with the
// path.
func (r *RunResult) Artifact() (*Artifact, error) { return ParseArtifact(r.Raw) }

// Report returns the typed view of an older evaluation.
func (r *RunResult) Report() (*Report, error) { return ParseReport(r.Raw) }

// Trajectory returns the typed view of a simulation's result.
func (r *RunResult) Trajectory() (*TrajectoryRunMeta, error) { return ParseTrajectoryRun(r.Raw) }

// SaveArtifact records an evaluation.
func (r *Run) SaveArtifact(ctx context.Context, a *Artifact) (SavedRun, error) {
	return r.saveTyped(ctx, a)
}

// SaveReport records an evaluation in the older form.
func (r *Run) SaveReport(ctx context.Context, report *Report) (SavedRun, error) {
	return r.saveTyped(ctx, report)
}

// SaveTrajectory records the result of a simulation.
func (r *Run) SaveTrajectory(ctx context.Context, m *TrajectoryRunMeta) (SavedRun, error) {
	raw, err := rawjson.Marshal(m)
	if err == nil {
		_, err = ParseTrajectoryRun(raw)
	}
	if err != nil {
		return SavedRun{}, rawError("", err)
	}
	return r.Save(ctx, raw)
}

func (r *Run) saveTyped(ctx context.Context, v any) (SavedRun, error) {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		return SavedRun{}, rawError("", err)
	}
	return r.Save(ctx, raw)
}

// checkResult checks a result by the schema of its type.
func checkResult(t RunType, raw events.Raw) error {
	switch {
	case t != TallyRun:
		if _, err := rawjson.Object(raw); err != nil {
			return rawError("", err)
		}
		return nil
	case isReport(raw):
		_, err := ParseReport(raw)
		return err
	}
	_, err := ParseArtifact(raw)
	return err
}

// isReport distinguishes the two forms of an evaluation.
func isReport(raw events.Raw) bool {
	fields, err := rawjson.Object(raw)
	if err != nil {
		return false
	}
	_, versioned := fields.Get("schemaVersion")
	_, targets := fields.Get("perTargetResults")
	return targets && !versioned
}

// ParseArtifact parses an Artifact: schema version 1, scores and rates from 0 to 1. An error is *events.InvalidError
// with the path.
func ParseArtifact(raw events.Raw) (*Artifact, error) {
	return parseChecked(raw, func(c *checker, a *Artifact) {
		c.version("schemaVersion", a.SchemaVersion)
		c.present(raw, "runId", "createdAt", "defs", "result")
		c.artifact(a)
	})
}

// ParseReport parses a Report.
func ParseReport(raw events.Raw) (*Report, error) {
	return parseChecked(raw, func(c *checker, r *Report) {
		c.present(raw, "runId", "perTargetResults")
		c.report(r)
	})
}

// parseChecked parses a typed view and checks it.
func parseChecked[T any](raw events.Raw, check func(*checker, *T)) (*T, error) {
	v := new(T)
	if err := rawjson.Unmarshal(raw, v); err != nil {
		return nil, rawError("", err)
	}
	c := &checker{}
	check(c, v)
	if c.err != nil {
		return v, c.err
	}
	return v, nil
}

// checker keeps the first error.
type checker struct{ err *events.InvalidError }

func (c *checker) fail(path, format string, args ...any) {
	if c.err == nil {
		c.err = &events.InvalidError{Field: path, Reason: fmt.Sprintf(format, args...)}
	}
}

// present checks that an object has members with these names.
func (c *checker) present(raw events.Raw, names ...string) {
	fields, err := rawjson.Object(raw)
	if err != nil {
		return
	}
	for _, name := range names {
		if _, ok := fields.Get(name); !ok {
			c.fail(name, "missing")
		}
	}
}

func (c *checker) report(r *Report) {
	for i, t := range r.PerTargetResults {
		at := fmt.Sprintf("perTargetResults[%d]", i)
		for j, m := range t.DerivedMetrics {
			c.ratio(fmt.Sprintf("%s.derivedMetrics[%d].value", at, j), &m.Value)
		}
		for name, v := range t.Verdicts.All() {
			at := fmt.Sprintf("%s.verdicts[%q]", at, name)
			c.ratio(at+".score", &v.Score)
			c.oneOf(at+".verdict", v.Verdict, "pass", "fail", "unknown")
		}
	}
}

// version checks that the version is 1.
func (c *checker) version(path string, have int) {
	if have != 1 {
		c.fail(path, "%d: want 1", have)
	}
}

// ratio checks that an optional number is from 0 to 1.
func (c *checker) ratio(path string, v *float64) {
	if v != nil && !(*v >= 0 && *v <= 1) {
		c.fail(path, "%v: want 0 to 1", *v)
	}
}

func (c *checker) oneOf(path, have string, want ...string) {
	if !slices.Contains(want, have) {
		c.fail(path, "%q: want one of %q", have, want)
	}
}

func (c *checker) artifact(a *Artifact) {
	if a.Store != nil {
		c.oneOf("store.backend", a.Store.Backend, "local", "s2", "redis")
	}
	for name, d := range a.Defs.Metrics.All() {
		at := fmt.Sprintf("defs.metrics[%q]", name)
		c.oneOf(at+".scope", d.Scope, "single", "multi")
		c.oneOf(at+".valueType", d.ValueType, "number", "boolean", "string", "ordinal")
	}
	for name, d := range a.Defs.Evals.All() {
		at := fmt.Sprintf("defs.evals[%q]", name)
		c.oneOf(at+".kind", d.Kind, evalKinds...)
		c.oneOf(at+".outputShape", d.OutputShape, "seriesByStepIndex", "scalar")
		if d.Verdict != nil {
			c.policy(at+".verdict", d.Verdict)
		}
	}
	for name, d := range a.Defs.Scorers.All() {
		c.ratio(fmt.Sprintf("defs.scorers[%q].fallbackScore", name), d.FallbackScore)
	}
	c.run(&a.Result)
}

var evalKinds = []string{"singleTurn", "multiTurn", "scorer"}

func (c *checker) policy(path string, p *VerdictPolicy) {
	c.oneOf(path+".kind", p.Kind, "none", "boolean", "number", "ordinal", "custom")
	if p.Kind == "number" {
		c.oneOf(path+".type", p.Type, "threshold", "range")
	}
}

func (c *checker) run(r *Evaluation) {
	for name, s := range r.SingleTurn.All() {
		c.series(fmt.Sprintf("result.singleTurn[%q]", name), &s)
	}
	for name, e := range r.MultiTurn.All() {
		c.eval(fmt.Sprintf("result.multiTurn[%q]", name), &e)
	}
	for name, s := range r.Scorers.All() {
		at := fmt.Sprintf("result.scorers[%q]", name)
		switch {
		case s.Shape == "seriesByStepIndex" && s.Series != nil:
			c.series(at+".series", s.Series)
		case s.Shape == "scalar" && s.Result != nil:
			c.eval(at+".result", s.Result)
		default:
			c.fail(at+".shape", "%q: want seriesByStepIndex with a series or scalar with a result", s.Shape)
		}
	}
	if r.Summaries == nil {
		return
	}
	for name, s := range r.Summaries.ByEval.All() {
		at := fmt.Sprintf("result.summaries.byEval[%q]", name)
		c.oneOf(at+".kind", s.Kind, evalKinds...)
		if v := s.VerdictSummary; v != nil {
			c.ratio(at+".verdictSummary.passRate", &v.PassRate)
			c.ratio(at+".verdictSummary.failRate", &v.FailRate)
			c.ratio(at+".verdictSummary.unknownRate", &v.UnknownRate)
		}
	}
}

func (c *checker) series(path string, s *Series) {
	for i, e := range s.ByStepIndex {
		if e != nil {
			c.eval(fmt.Sprintf("%s.byStepIndex[%d]", path, i), e)
		}
	}
}

func (c *checker) eval(path string, e *Result) {
	c.ratio(path+".measurement.score", e.Measurement.Score)
	c.scalar(path+".measurement.rawValue", e.Measurement.RawValue)
	if o := e.Outcome; o != nil {
		c.oneOf(path+".outcome.verdict", o.Verdict, "pass", "fail", "unknown")
		c.policy(path+".outcome.policy", &o.Policy)
		if o.Observed != nil {
			c.ratio(path+".outcome.observed.score", o.Observed.Score)
			c.scalar(path+".outcome.observed.rawValue", o.Observed.RawValue)
		}
	}
}

func (c *checker) scalar(path string, raw events.Raw) {
	if startsWith(raw, "{[") {
		c.fail(path, "want a number, a boolean, a string or null")
	}
}
