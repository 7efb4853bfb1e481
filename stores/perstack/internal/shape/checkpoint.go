package shape

import (
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

var (
	delegation  = object(must("expert", expert), must("toolCallId", text), must("toolName", text), must("query", text))
	delegatedBy = object(must("expert", expert), must("toolCallId", text), must("toolName", text), must("checkpointId", text), must("runId", text))
	failure     = object(must("name", text), must("message", text), may("statusCode", count), must("isRetryable", boolean))
)

// metadata may have any members. Only runtime is checked, if present.
var metadata = object(may("runtime", word("local", "cursor", "claude-code", "gemini", "docker")))

var checkpoint = object(must("id", id), must("jobId", id), must("runId", id),
	must("status", word("init", "proceeding", "completed", "stoppedByInteractiveTool", "stoppedByDelegate", "stoppedByExceededMaxSteps", "stoppedByError")),
	must("stepNumber", count), must("messages", list(message)), must("expert", expert), may("delegateTo", list(delegation)), may("delegatedBy", delegatedBy),
	must("usage", usage), may("contextWindow", count), may("contextWindowUsage", number), may("pendingToolCalls", list(toolCall)),
	may("partialToolResults", list(toolResult)), may("metadata", metadata), may("error", failure), may("retryCount", count))

// Checkpoint has the members of a checkpoint that the log stores beside its raw value.
type Checkpoint struct {
	ID     string
	Job    string
	Run    string
	Status string
	Step   int64
	Parent string // the checkpoint that it delegates from, or ""
	Usage  events.Raw
	Raw    events.Raw
}

// ParseCheckpoint checks a checkpoint against the original's schema, as ParseJob does.
func ParseCheckpoint(raw events.Raw) (Checkpoint, error) {
	m, err := parse("checkpoint", raw, checkpoint)
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{ID: m.Text("id"), Job: m.Text("jobId"), Run: m.Text("runId"), Status: m.Text("status"), Step: wholeOf(m, "stepNumber"), Raw: raw}
	c.Parent = m.Object("delegatedBy").Text("checkpointId")
	c.Usage, _ = m.Get("usage")
	return c, nil
}

// Saved returns the event of the checkpoint. raw is its value without the lists. at is the last offset that its writer
// knows, or 0.
func (c Checkpoint) Saved(raw events.Raw, lists events.Lists, at events.Offset) *events.CheckpointSaved {
	run := RunRef(c.Run)
	return &events.CheckpointSaved{ID: c.ID, Kind: events.CheckpointStep, At: at, Run: &run, Step: c.Step, Status: c.Status, Parent: c.Parent, Raw: raw, Lists: lists}
}

// EventID returns the id of the checkpoint's event. before is the offset of the version that it replaces, or 0. An
// equal checkpoint after the same version is the same event.
func (c Checkpoint) EventID(before events.Offset) string {
	return events.DerivedID("checkpoint", c.Job, c.ID, sum(c.Raw), before.String())
}

// DelegatedBy returns the tool call that started a value's run: the member delegatedBy of a checkpoint, or of the
// checkpoint in an event that starts a run.
func DelegatedBy(raw events.Raw) (events.Lineage, bool) {
	m, err := rawjson.Object(raw)
	if err != nil {
		return events.Lineage{}, false
	}
	if first := m.Object("initialCheckpoint"); first != nil {
		m = first
	}
	by := m.Object("delegatedBy")
	return events.Lineage{Run: by.Text("runId"), Checkpoint: by.Text("checkpointId"), ToolCall: by.Text("toolCallId")}, by != nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
