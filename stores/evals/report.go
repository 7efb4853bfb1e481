package evals

import (
	"github.com/tallylog/tally/events"
)

// Report is the result of an evaluation by an older version of the writer. It is a typed view, like an Artifact. The
// writer's maps are objects, in their order.
type Report struct {
	RunID              string                `json:"runId"`
	Timestamp          string                `json:"timestamp"`
	PerTargetResults   []TargetResult        `json:"perTargetResults"`
	AggregateSummaries []AggregateSummary    `json:"aggregateSummaries"`
	EvalSummaries      Ordered[ReportedEval] `json:"evalSummaries"`
	MetricToEvalMap    *Ordered[events.Raw]  `json:"metricToEvalMap,omitempty" rawjson:"kept"`
	Metadata           events.Raw            `json:"metadata,omitempty" rawjson:"kept"`
	Unknown            events.Fields         `json:",unknown"`
}

// TargetResult is the result for one target.
type TargetResult struct {
	TargetID       string                   `json:"targetId"`
	RawMetrics     []RawMetric              `json:"rawMetrics"`
	DerivedMetrics []DerivedMetric          `json:"derivedMetrics"`
	Verdicts       Ordered[ReportedVerdict] `json:"verdicts"`
	Unknown        events.Fields            `json:",unknown"`
}

// RawMetric is a measured value.
type RawMetric struct {
	MetricDef     events.Raw    `json:"metricDef"`
	Value         events.Raw    `json:"value"`
	Confidence    *float64      `json:"confidence,omitempty" rawjson:"kept"`
	Reasoning     string        `json:"reasoning,omitempty" rawjson:"kept"`
	ExecutionTime *float64      `json:"executionTime,omitempty" rawjson:"kept"` // ms
	Timestamp     string        `json:"timestamp,omitempty" rawjson:"kept"`
	Metadata      events.Raw    `json:"metadata,omitempty" rawjson:"kept"`
	Unknown       events.Fields `json:",unknown"`
}

// DerivedMetric is a value between 0 and 1 that is computed from others.
type DerivedMetric struct {
	Definition events.Raw    `json:"definition"`
	Value      float64       `json:"value"`
	Unknown    events.Fields `json:",unknown"`
}

// ReportedVerdict is the verdict of one eval.
type ReportedVerdict struct {
	Verdict  string        `json:"verdict"` // pass, fail or unknown
	Score    float64       `json:"score"`   // 0 to 1
	RawValue events.Raw    `json:"rawValue,omitempty" rawjson:"kept"`
	Unknown  events.Fields `json:",unknown"`
}

// AggregateSummary summarises one metric.
type AggregateSummary struct {
	Metric       events.Raw    `json:"metric"`
	Aggregations events.Raw    `json:"aggregations,omitempty" rawjson:"kept"`
	Count        int           `json:"count"`
	Average      *float64      `json:"average,omitempty" rawjson:"kept"`
	Percentile   events.Raw    `json:"percentile,omitempty" rawjson:"kept"`
	Unknown      events.Fields `json:",unknown"`
}

// ReportedEval summarises one eval.
type ReportedEval struct {
	EvalName       string        `json:"evalName"`
	EvalKind       string        `json:"evalKind"` // singleTurn, multiTurn or scorer
	Aggregations   events.Raw    `json:"aggregations,omitempty" rawjson:"kept"`
	VerdictSummary events.Raw    `json:"verdictSummary,omitempty" rawjson:"kept"`
	Unknown        events.Fields `json:",unknown"`
}
