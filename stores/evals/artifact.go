package evals

import (
	"github.com/tallylog/tally/events"
)

// Artifact is the result of an evaluation, schema version 1. It is a typed view: unknown members are in the fields
// called Unknown, and are written after the known ones. RunResult.Raw has the bytes of a stored result.
type Artifact struct {
	SchemaVersion int            `json:"schemaVersion"` // 1
	RunID         string         `json:"runId"`
	CreatedAt     string         `json:"createdAt"`
	Store         *RunStore      `json:"store,omitempty" rawjson:"kept"`
	Artifacts     *RunArtifacts  `json:"artifacts,omitempty" rawjson:"kept"`
	Defs          RunDefs        `json:"defs"`
	Result        Evaluation     `json:"result"`
	Metadata      *events.Fields `json:"metadata,omitempty" rawjson:"kept"`
	Unknown       events.Fields  `json:",unknown"`
}

// RunStore is the store of the evaluated conversation.
type RunStore struct {
	Backend  string        `json:"backend"` // local, s2 or redis
	BasePath string        `json:"basePath"`
	Unknown  events.Fields `json:",unknown"`
}

// RunArtifacts names the files of the evaluated conversation.
type RunArtifacts struct {
	ConversationID        string        `json:"conversationId"`
	RunPath               string        `json:"runPath,omitempty" rawjson:"kept"`
	ConversationJSONLPath string        `json:"conversationJsonlPath,omitempty" rawjson:"kept"`
	StepTracesPath        string        `json:"stepTracesPath,omitempty" rawjson:"kept"`
	Unknown               events.Fields `json:",unknown"`
}

// RunDefs are the definitions that an evaluation used.
type RunDefs struct {
	Metrics Ordered[MetricDef] `json:"metrics"`
	Evals   Ordered[Def]       `json:"evals"`
	Scorers Ordered[ScorerDef] `json:"scorers"`
	Unknown events.Fields      `json:",unknown"`
}

// MetricDef defines a metric.
type MetricDef struct {
	Name          string         `json:"name"`
	Scope         string         `json:"scope"`     // single or multi
	ValueType     string         `json:"valueType"` // number, boolean, string or ordinal
	Description   string         `json:"description,omitempty" rawjson:"kept"`
	Metadata      *events.Fields `json:"metadata,omitempty" rawjson:"kept"`
	LLM           *MetricLLM     `json:"llm,omitempty" rawjson:"kept"`
	Aggregators   []Aggregator   `json:"aggregators,omitempty" rawjson:"kept"`
	Normalization events.Raw     `json:"normalization,omitempty" rawjson:"kept"`
	Unknown       events.Fields  `json:",unknown"`
}

// MetricLLM configures how a model measures.
type MetricLLM struct {
	Provider *events.Fields `json:"provider,omitempty" rawjson:"kept"`
	Prompt   *MetricPrompt  `json:"prompt,omitempty" rawjson:"kept"`
	Rubric   *events.Fields `json:"rubric,omitempty" rawjson:"kept"`
	Unknown  events.Fields  `json:",unknown"`
}

// MetricPrompt is the prompt for a measuring model.
type MetricPrompt struct {
	Instruction string        `json:"instruction"`
	Variables   []string      `json:"variables,omitempty" rawjson:"kept"`
	Unknown     events.Fields `json:",unknown"`
}

// Aggregator aggregates a series.
type Aggregator struct {
	Kind        string        `json:"kind"`
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty" rawjson:"kept"`
	Config      events.Raw    `json:"config,omitempty" rawjson:"kept"`
	Unknown     events.Fields `json:",unknown"`
}

// Def defines an eval.
type Def struct {
	Name        string         `json:"name"`
	Kind        string         `json:"kind"`        // singleTurn, multiTurn or scorer
	OutputShape string         `json:"outputShape"` // seriesByStepIndex or scalar
	Metric      string         `json:"metric"`
	ScorerRef   string         `json:"scorerRef,omitempty" rawjson:"kept"`
	Verdict     *VerdictPolicy `json:"verdict,omitempty" rawjson:"kept"`
	Description string         `json:"description,omitempty" rawjson:"kept"`
	Metadata    *events.Fields `json:"metadata,omitempty" rawjson:"kept"`
	Unknown     events.Fields  `json:",unknown"`
}

// VerdictPolicy defines when a measurement passes.
type VerdictPolicy struct {
	Kind     string        `json:"kind"`                          // none, boolean, number, ordinal or custom
	Type     string        `json:"type,omitempty" rawjson:"kept"` // of kind number: threshold or range
	PassWhen *bool         `json:"passWhen,omitempty" rawjson:"kept"`
	PassAt   *float64      `json:"passAt,omitempty" rawjson:"kept"`
	Min      *float64      `json:"min,omitempty" rawjson:"kept"`
	Max      *float64      `json:"max,omitempty" rawjson:"kept"`
	PassIn   []string      `json:"passWhenIn,omitempty" rawjson:"kept"`
	Note     string        `json:"note,omitempty" rawjson:"kept"`
	Unknown  events.Fields `json:",unknown"`
}

// ScorerDef defines how measurements are combined.
type ScorerDef struct {
	Name             string         `json:"name"`
	Inputs           []ScorerInput  `json:"inputs"`
	NormalizeWeights *bool          `json:"normalizeWeights,omitempty" rawjson:"kept"`
	FallbackScore    *float64       `json:"fallbackScore,omitempty" rawjson:"kept"` // 0 to 1
	Combine          *Combine       `json:"combine,omitempty" rawjson:"kept"`
	Description      string         `json:"description,omitempty" rawjson:"kept"`
	Metadata         *events.Fields `json:"metadata,omitempty" rawjson:"kept"`
	Unknown          events.Fields  `json:",unknown"`
}

// ScorerInput is one measurement of a scorer.
type ScorerInput struct {
	MetricRef             string        `json:"metricRef"`
	Weight                float64       `json:"weight"`
	Required              *bool         `json:"required,omitempty" rawjson:"kept"`
	HasNormalizerOverride *bool         `json:"hasNormalizerOverride,omitempty" rawjson:"kept"`
	Unknown               events.Fields `json:",unknown"`
}

// Combine is the method by which a scorer combines.
type Combine struct {
	Kind    string        `json:"kind"` // weightedAverage, identity, custom or unknown
	Note    string        `json:"note,omitempty" rawjson:"kept"`
	Unknown events.Fields `json:",unknown"`
}

// Evaluation has the results of an evaluation.
type Evaluation struct {
	StepCount  int                   `json:"stepCount"`
	SingleTurn Ordered[Series]       `json:"singleTurn"`
	MultiTurn  Ordered[Result]       `json:"multiTurn"`
	Scorers    Ordered[ScorerResult] `json:"scorers"`
	Summaries  *EvaluationSummaries  `json:"summaries,omitempty" rawjson:"kept"`
	Unknown    events.Fields         `json:",unknown"`
}

// Series has a result for each step by index, nil for a step that was not judged.
type Series struct {
	ByStepIndex []*Result     `json:"byStepIndex"`
	Unknown     events.Fields `json:",unknown"`
}

// Result is the result of one eval for a step or the conversation.
type Result struct {
	EvalRef     string        `json:"evalRef"`
	Measurement Measurement   `json:"measurement"`
	Outcome     *Outcome      `json:"outcome,omitempty" rawjson:"kept"`
	Unknown     events.Fields `json:",unknown"`
}

// Measurement is a measured value.
type Measurement struct {
	MetricRef       string         `json:"metricRef"`
	Score           *float64       `json:"score,omitempty" rawjson:"kept"`    // 0 to 1
	RawValue        events.Raw     `json:"rawValue,omitempty" rawjson:"kept"` // number, boolean, string or null
	Confidence      *float64       `json:"confidence,omitempty" rawjson:"kept"`
	Reasoning       string         `json:"reasoning,omitempty" rawjson:"kept"`
	ExecutionTimeMS *float64       `json:"executionTimeMs,omitempty" rawjson:"kept"`
	Timestamp       string         `json:"timestamp,omitempty" rawjson:"kept"`
	Metadata        *events.Fields `json:"metadata,omitempty" rawjson:"kept"`
	Normalization   events.Raw     `json:"normalization,omitempty" rawjson:"kept"`
	Unknown         events.Fields  `json:",unknown"`
}

// Outcome is the verdict on a measurement.
type Outcome struct {
	Verdict  string        `json:"verdict"` // pass, fail or unknown
	Policy   VerdictPolicy `json:"policy"`
	Observed *Observed     `json:"observed,omitempty" rawjson:"kept"`
	Unknown  events.Fields `json:",unknown"`
}

// Observed has the values that a verdict was based on.
type Observed struct {
	RawValue events.Raw    `json:"rawValue,omitempty" rawjson:"kept"`
	Score    *float64      `json:"score,omitempty" rawjson:"kept"` // 0 to 1
	Unknown  events.Fields `json:",unknown"`
}

// ScorerResult is a series or one result.
type ScorerResult struct {
	Shape   string        `json:"shape"` // seriesByStepIndex or scalar
	Series  *Series       `json:"series,omitempty" rawjson:"kept"`
	Result  *Result       `json:"result,omitempty" rawjson:"kept"`
	Unknown events.Fields `json:",unknown"`
}

// EvaluationSummaries has a summary for each eval.
type EvaluationSummaries struct {
	ByEval  Ordered[RunSummary] `json:"byEval"`
	Unknown events.Fields       `json:",unknown"`
}

// RunSummary summarises the results of one eval.
type RunSummary struct {
	Eval           string           `json:"eval"`
	Kind           string           `json:"kind"`
	Count          int              `json:"count"`
	Aggregations   *RunAggregations `json:"aggregations,omitempty" rawjson:"kept"`
	VerdictSummary *VerdictSummary  `json:"verdictSummary,omitempty" rawjson:"kept"`
	Unknown        events.Fields    `json:",unknown"`
}

// RunAggregations are numbers, or objects of numbers, by name.
type RunAggregations struct {
	Score   Ordered[events.Raw]  `json:"score"`
	Raw     *Ordered[events.Raw] `json:"raw,omitempty" rawjson:"kept"`
	Unknown events.Fields        `json:",unknown"`
}

// VerdictSummary counts verdicts.
type VerdictSummary struct {
	PassRate     float64       `json:"passRate"`
	FailRate     float64       `json:"failRate"`
	UnknownRate  float64       `json:"unknownRate"`
	PassCount    int           `json:"passCount"`
	FailCount    int           `json:"failCount"`
	UnknownCount int           `json:"unknownCount"`
	TotalCount   int           `json:"totalCount"`
	Unknown      events.Fields `json:",unknown"`
}
