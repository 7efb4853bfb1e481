package perstack

import (
	"github.com/tallylog/tally/events"
)

// JobStatus is where a job is.
type JobStatus string

// The statuses of a job.
const (
	JobRunning                  JobStatus = "running"
	JobCompleted                JobStatus = "completed"
	JobStoppedByMaxSteps        JobStatus = "stoppedByMaxSteps"
	JobStoppedByInteractiveTool JobStatus = "stoppedByInteractiveTool"
	JobStoppedByError           JobStatus = "stoppedByError"
)

// CheckpointStatus is where a run was at a checkpoint.
type CheckpointStatus string

// The statuses of a checkpoint.
const (
	CheckpointInit                      CheckpointStatus = "init"
	CheckpointProceeding                CheckpointStatus = "proceeding"
	CheckpointCompleted                 CheckpointStatus = "completed"
	CheckpointStoppedByInteractiveTool  CheckpointStatus = "stoppedByInteractiveTool"
	CheckpointStoppedByDelegate         CheckpointStatus = "stoppedByDelegate"
	CheckpointStoppedByExceededMaxSteps CheckpointStatus = "stoppedByExceededMaxSteps"
	CheckpointStoppedByError            CheckpointStatus = "stoppedByError"
)

// Usage counts tokens.
type Usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens"`
	TotalTokens       int64 `json:"totalTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`

	Unknown events.Fields `json:",unknown"`
}

// Plus sums two usages. What is unknown of the other one is left out.
func (u Usage) Plus(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.TotalTokens += v.TotalTokens
	u.CachedInputTokens += v.CachedInputTokens
	return u
}

// Job is what a user asked for. Times are Unix milliseconds.
//
// In all types of this package Unknown keeps the members for which there is no field. It also keeps
// an optional member that is there with the zero value of its field, such as "maxSteps": 0: without
// it, a field with the zero value is not written. Once the field has another value, that is written.
type Job struct {
	ID                   string    `json:"id"`
	Status               JobStatus `json:"status"`
	CoordinatorExpertKey string    `json:"coordinatorExpertKey"`
	TotalSteps           int64     `json:"totalSteps"`
	MaxSteps             int64     `json:"maxSteps,omitempty" rawjson:"kept"` // 0: not said
	Usage                Usage     `json:"usage"`
	StartedAt            int64     `json:"startedAt"`
	FinishedAt           int64     `json:"finishedAt,omitempty" rawjson:"kept"` // 0: not finished

	Unknown events.Fields `json:",unknown"`
}

// Expert names an expert.
type Expert struct {
	Key     string `json:"key"`
	Name    string `json:"name"`
	Version string `json:"version"`

	Unknown events.Fields `json:",unknown"`
}

// Delegation asks another expert, by a call of a tool.
type Delegation struct {
	Expert     Expert `json:"expert"`
	ToolCallID string `json:"toolCallId"`
	ToolName   string `json:"toolName"`
	Query      string `json:"query"`

	Unknown events.Fields `json:",unknown"`
}

// DelegatedBy says which call of which run started this one.
type DelegatedBy struct {
	Expert       Expert `json:"expert"`
	ToolCallID   string `json:"toolCallId"`
	ToolName     string `json:"toolName"`
	CheckpointID string `json:"checkpointId"`
	RunID        string `json:"runId"`

	Unknown events.Fields `json:",unknown"`
}

// CheckpointError is the error that a run stopped with.
type CheckpointError struct {
	Name        string `json:"name"`
	Message     string `json:"message"`
	StatusCode  int64  `json:"statusCode,omitempty" rawjson:"kept"`
	IsRetryable bool   `json:"isRetryable"`

	Unknown events.Fields `json:",unknown"`
}

// Checkpoint is a run after one of its steps: what is needed to go on from there.
type Checkpoint struct {
	ID                 string           `json:"id"`
	JobID              string           `json:"jobId"`
	RunID              string           `json:"runId"`
	Status             CheckpointStatus `json:"status"`
	StepNumber         int64            `json:"stepNumber"`
	Messages           []events.Raw     `json:"messages"` // all of them, each as it stands
	Expert             Expert           `json:"expert"`
	DelegateTo         []Delegation     `json:"delegateTo,omitempty" rawjson:"kept"`
	DelegatedBy        *DelegatedBy     `json:"delegatedBy,omitempty" rawjson:"kept"`
	Usage              Usage            `json:"usage"`                                       // of the run and of what it went on from
	ContextWindow      int64            `json:"contextWindow,omitempty" rawjson:"kept"`      // tokens; 0: not said
	ContextWindowUsage float64          `json:"contextWindowUsage,omitempty" rawjson:"kept"` // from 0 to 1; 0: not said
	PendingToolCalls   []events.Raw     `json:"pendingToolCalls,omitempty" rawjson:"kept"`
	PartialToolResults []events.Raw     `json:"partialToolResults,omitempty" rawjson:"kept"`
	Metadata           events.Raw       `json:"metadata,omitempty" rawjson:"kept"`
	Error              *CheckpointError `json:"error,omitempty" rawjson:"kept"`
	RetryCount         int64            `json:"retryCount,omitempty" rawjson:"kept"`

	Unknown events.Fields `json:",unknown"`
}

// Event is a change of a run's state. What its type brings is in Payload, by its member.
type Event struct {
	Type       string `json:"type"`
	ID         string `json:"id"`
	ExpertKey  string `json:"expertKey"`
	Timestamp  int64  `json:"timestamp"` // Unix milliseconds
	JobID      string `json:"jobId"`
	RunID      string `json:"runId"`
	StepNumber int64  `json:"stepNumber"`

	Payload events.Fields `json:",unknown"`
}

// EventMeta is what the name of an event's file says, and where the log has it.
type EventMeta struct {
	Timestamp  int64
	StepNumber int64
	Type       string

	Offset events.Offset
}

// RunSetting is what a run was started with. It has secrets: the log keeps them sealed.
type RunSetting struct {
	Model              string        `json:"model"`
	ProviderConfig     events.Raw    `json:"providerConfig"`
	JobID              string        `json:"jobId"`
	RunID              string        `json:"runId"`
	ExpertKey          string        `json:"expertKey"`
	Input              events.Raw    `json:"input"`
	Experts            events.Fields `json:"experts"` // by key
	ReasoningBudget    events.Raw    `json:"reasoningBudget,omitempty" rawjson:"kept"`
	MaxSteps           int64         `json:"maxSteps,omitempty" rawjson:"kept"`
	MaxRetries         int64         `json:"maxRetries,omitempty" rawjson:"kept"`
	Timeout            int64         `json:"timeout,omitempty" rawjson:"kept"` // milliseconds
	StartedAt          int64         `json:"startedAt"`                        // Unix milliseconds
	UpdatedAt          int64         `json:"updatedAt"`                        // Unix milliseconds
	PerstackAPIBaseURL string        `json:"perstackApiBaseUrl,omitempty" rawjson:"kept"`
	PerstackAPIKey     string        `json:"perstackApiKey,omitempty" rawjson:"kept"`
	BaseSkillCommand   []string      `json:"perstackBaseSkillCommand,omitempty" rawjson:"kept"`
	Env                events.Fields `json:"env,omitempty" rawjson:"kept"`
	ProxyURL           string        `json:"proxyUrl,omitempty" rawjson:"kept"`
	Verbose            bool          `json:"verbose,omitempty" rawjson:"kept"`

	Unknown events.Fields `json:",unknown"`
}
