package perstack

import (
	"github.com/tallylog/tally/events"
)

// JobStatus is the status of a job.
type JobStatus string

// Statuses of a job.
const (
	JobRunning                  JobStatus = "running"
	JobCompleted                JobStatus = "completed"
	JobStoppedByMaxSteps        JobStatus = "stoppedByMaxSteps"
	JobStoppedByInteractiveTool JobStatus = "stoppedByInteractiveTool"
	JobStoppedByError           JobStatus = "stoppedByError"
)

// CheckpointStatus is the status of a run at a checkpoint.
type CheckpointStatus string

// Statuses of a checkpoint.
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

// Plus returns the sum of two usages. Unknown members of v are dropped.
func (u Usage) Plus(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.TotalTokens += v.TotalTokens
	u.CachedInputTokens += v.CachedInputTokens
	return u
}

// Job is a task of a user. Times are Unix milliseconds.
//
// In all types of this package, Unknown keeps members without a field. It also keeps an optional member that is present
// with the zero value of its field, such as "maxSteps": 0, because a field with the zero value is otherwise not
// written. If the field has another value, that is written.
type Job struct {
	ID                   string    `json:"id"`
	Status               JobStatus `json:"status"`
	CoordinatorExpertKey string    `json:"coordinatorExpertKey"`
	TotalSteps           int64     `json:"totalSteps"`
	MaxSteps             int64     `json:"maxSteps,omitempty" rawjson:"kept"` // 0: not set
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

// Delegation is a request to another expert, by a tool call.
type Delegation struct {
	Expert     Expert `json:"expert"`
	ToolCallID string `json:"toolCallId"`
	ToolName   string `json:"toolName"`
	Query      string `json:"query"`

	Unknown events.Fields `json:",unknown"`
}

// DelegatedBy names the tool call that started a run.
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

// Checkpoint is the state of a run after a step, sufficient to resume it.
type Checkpoint struct {
	ID                 string           `json:"id"`
	JobID              string           `json:"jobId"`
	RunID              string           `json:"runId"`
	Status             CheckpointStatus `json:"status"`
	StepNumber         int64            `json:"stepNumber"`
	Messages           []events.Raw     `json:"messages"` // all messages, byte for byte
	Expert             Expert           `json:"expert"`
	DelegateTo         []Delegation     `json:"delegateTo,omitempty" rawjson:"kept"`
	DelegatedBy        *DelegatedBy     `json:"delegatedBy,omitempty" rawjson:"kept"`
	Usage              Usage            `json:"usage"`                                       // of the run and its predecessors
	ContextWindow      int64            `json:"contextWindow,omitempty" rawjson:"kept"`      // tokens; 0: not set
	ContextWindowUsage float64          `json:"contextWindowUsage,omitempty" rawjson:"kept"` // from 0 to 1; 0: not set
	PendingToolCalls   []events.Raw     `json:"pendingToolCalls,omitempty" rawjson:"kept"`
	PartialToolResults []events.Raw     `json:"partialToolResults,omitempty" rawjson:"kept"`
	Metadata           events.Raw       `json:"metadata,omitempty" rawjson:"kept"`
	Error              *CheckpointError `json:"error,omitempty" rawjson:"kept"`
	RetryCount         int64            `json:"retryCount,omitempty" rawjson:"kept"`

	Unknown events.Fields `json:",unknown"`
}

// Event is a change of a run's state. Payload has the members of its type.
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

// EventMeta is the metadata in the name of an event's file, and its offset in the log.
type EventMeta struct {
	Timestamp  int64
	StepNumber int64
	Type       string

	Offset events.Offset
}

// RunSetting is the setting with which a run starts. The log keeps its secrets sealed.
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
