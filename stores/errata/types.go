package errata

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally/events"
)

// Turn is one turn of a model's history.
type Turn struct {
	Role    string `json:"role"` // user or assistant
	Content string `json:"content"`
}

// Response is the answer of one model of a panel.
type Response struct {
	ModelID         string
	Text            string
	LatencyMS       int64
	InputTokens     int64
	OutputTokens    int64
	ReasoningTokens int64 // part of OutputTokens
	CostUSD         float64
	ProposedWrites  []FileWrite
	ToolCalls       map[string]int
	Steps           int
	Error           string // "" for success
	Interrupted     bool
	StopReason      string // StopComplete or another
}

// Reasons why a model stopped.
const (
	StopComplete        = "complete"
	StopTimeout         = "timeout"
	StopMaxSteps        = "max_steps"
	StopContextOverflow = "context_overflow"
	StopCancelled       = "cancelled"
	StopError           = "error"
)

// OK reports whether the model answered without an error.
func (r Response) OK() bool { return r.Error == "" }

// Completed reports whether the model finished by itself: without an error, an interruption or a time limit.
func (r Response) Completed() bool {
	switch r.StopReason {
	case StopTimeout, StopCancelled, StopError:
		return false
	}
	return r.OK() && !r.Interrupted
}

// check refuses impossible figures, because sums would contain them for ever.
func (r Response) check(i int) error {
	wrong := func(field string, value any) error {
		return &events.InvalidError{Field: fmt.Sprintf("responses[%d].%s", i, field), Reason: fmt.Sprintf("%v is not a valid value", value)}
	}
	if r.ModelID == "" {
		return wrong("modelID", `""`)
	}
	if r.CostUSD < 0 || math.IsNaN(r.CostUSD) || math.IsInf(r.CostUSD, 0) {
		return wrong("costUSD", r.CostUSD)
	}
	for _, c := range []struct {
		field string
		n     int64
	}{{"latencyMS", r.LatencyMS}, {"inputTokens", r.InputTokens}, {"outputTokens", r.OutputTokens}, {"reasoningTokens", r.ReasoningTokens}, {"steps", int64(r.Steps)}} {
		if c.n < 0 || c.n > int64(events.MaxOffset) {
			return wrong(c.field, c.n)
		}
	}
	return nil
}

// FileWrite is a file that a model proposes to write or to delete.
type FileWrite struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Delete  bool   `json:"delete,omitempty"`
}

// Event is an event during a model's work: text, reading, writing, error or bash.
type Event struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

// Metadata is a session in the form of session_metadata.json. encoding/json writes it with exactly the original's
// bytes.
type Metadata struct {
	ID           string       `json:"id"`
	CreatedAt    time.Time    `json:"created_at"`
	LastActiveAt time.Time    `json:"last_active_at"`
	Models       []string     `json:"models,omitempty"`
	FirstPrompt  string       `json:"first_prompt,omitempty"` // its first 120 runes
	LastPrompt   string       `json:"last_prompt,omitempty"`
	PromptCount  int          `json:"prompt_count"`
	ConfigHash   string       `json:"config_hash,omitempty"`
	Runs         []RunSummary `json:"runs"`
}

// RunSummary is a run in Metadata, or the marker of a rewind.
type RunSummary struct {
	Timestamp           time.Time                 `json:"timestamp"`
	PromptHash          string                    `json:"prompt_hash"`    // ph_ and the SHA-256 of the prompt in hex
	PromptPreview       string                    `json:"prompt_preview"` // its first 120 bytes
	Models              []string                  `json:"models"`
	Selected            string                    `json:"selected,omitempty"`
	Rating              string                    `json:"rating,omitempty"` // good or bad
	Type                string                    `json:"type,omitempty"`   // rewind: a marker
	LatenciesMS         map[string]int64          `json:"latencies_ms,omitempty"`
	CostsUSD            map[string]float64        `json:"costs_usd,omitempty"`
	InputTokens         map[string]int64          `json:"input_tokens,omitempty"`
	OutputTokens        map[string]int64          `json:"output_tokens,omitempty"`
	ToolCalls           map[string]map[string]int `json:"tool_calls,omitempty"`
	ProposedWritesCount map[string]int            `json:"proposed_writes_count,omitempty"`
	AppliedFiles        []string                  `json:"applied_files,omitempty"`
	ConfigHash          string                    `json:"config_hash,omitempty"`
	Note                string                    `json:"note,omitempty"`

	// Run is the run's id; for a marker, the id of the withdrawn run. It pairs the summary with its RunContent.
	Run string `json:"-"`
}

// Content is a session in the form of session_content.json.
type Content struct {
	SessionID string            `json:"session_id,omitempty"`
	Runs      []RunContent      `json:"runs"` // one for each of Metadata.Runs, an empty one for a marker
	Histories map[string][]Turn `json:"histories,omitempty"`
}

// RunContent is a run in Content.
type RunContent struct {
	Prompt     string         `json:"prompt"`
	PromptHash string         `json:"prompt_hash,omitempty"`
	Models     []ModelContent `json:"models"`

	Run string `json:"-"` // as in RunSummary
}

// ModelContent is the work of one model in a run.
type ModelContent struct {
	ModelID         string      `json:"model_id"`
	Text            string      `json:"text"`
	ProposedWrites  []FileWrite `json:"proposed_writes,omitempty"`
	Events          []Event     `json:"events"`
	StopReason      string      `json:"stop_reason,omitempty"`
	Steps           int         `json:"steps,omitempty"`
	ReasoningTokens int64       `json:"reasoning_tokens,omitempty"`
}

// Result is the result in the run.finished of a panel's run: its two views, in the forms of the two files. An
// importer writes the same.
type Result struct {
	Summary json.RawMessage `json:"summary"`
	Content json.RawMessage `json:"content"`
}

// Prefixes of ids that NewID makes.
const (
	SessionIDPrefix       = "ses_"
	RunIDPrefix           = "run_"
	ReportIDPrefix        = "rpt_"
	SessionReportIDPrefix = "srpt_"
)

// NewID returns an id: a prefix and a UUIDv7, so that ids sort by age.
func NewID(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }
