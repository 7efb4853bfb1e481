package perstack

import (
	"bytes"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// ParseJob reads a job. What the original's schema does not allow is an
// *events.InvalidError that names the member.
func ParseJob(raw events.Raw) (Job, error) {
	if _, err := shape.ParseJob(raw); err != nil {
		return Job{}, err
	}
	return decode[Job]("job", raw, jobNumbers...)
}

// ParseCheckpoint reads a checkpoint, as ParseJob does.
func ParseCheckpoint(raw events.Raw) (Checkpoint, error) {
	if _, err := shape.ParseCheckpoint(raw); err != nil {
		return Checkpoint{}, err
	}
	return decode[Checkpoint]("checkpoint", raw, checkpointNumbers...)
}

// ParseEvent reads an event, as ParseJob does.
func ParseEvent(raw events.Raw) (Event, error) {
	if _, err := shape.ParseEvent(raw); err != nil {
		return Event{}, err
	}
	return decode[Event]("event", raw, "timestamp", "stepNumber")
}

// ParseRunSetting reads the setting of a run, as ParseJob does.
func ParseRunSetting(raw events.Raw) (RunSetting, error) {
	if _, err := shape.ParseSetting(raw); err != nil {
		return RunSetting{}, err
	}
	return decode[RunSetting]("runSetting", raw, "maxSteps", "maxRetries", "timeout", "startedAt", "updatedAt")
}

// jobNumbers are the members of a job that have numbers.
var jobNumbers = []string{"totalSteps", "maxSteps", "startedAt", "finishedAt", "usage"}

var checkpointNumbers = []string{"stepNumber", "contextWindow", "retryCount", "usage", "error"}

var usageNumbers = []string{"inputTokens", "outputTokens", "reasoningTokens", "totalTokens", "cachedInputTokens"}

// decode reads a document. The numbers of some members may be spelled in any way.
func decode[T any](what string, raw events.Raw, numbers ...string) (v T, err error) {
	plain, err := shape.Plain(raw, numbers...)
	if err == nil {
		err = rawjson.Unmarshal(bytes.Clone(plain), &v)
	}
	if err != nil {
		return v, &events.InvalidError{Field: what, Reason: err.Error()}
	}
	return v, nil
}

// encode writes a document. What it has in common with the one that it replaces stays as it
// stands there: the order of members, the spelling of numbers, what is said in many words.
func encode[T any](what string, old events.Raw, v T, numbers ...string) (events.Raw, error) {
	fresh, err := rawjson.Marshal(v)
	if err != nil {
		return nil, &events.InvalidError{Field: what, Reason: err.Error()}
	}
	if old == nil {
		return fresh, nil
	}
	before, err := decode[T](what, old, numbers...)
	if err != nil {
		return fresh, nil // what was there was not one
	}
	was, err := rawjson.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("perstack: %s: %v", what, err)
	}
	return change(old, was, fresh)
}

// change makes of a document what the difference of two others says.
func change(old, was, fresh events.Raw) (events.Raw, error) {
	from, err := rawjson.Object(was)
	if err != nil {
		return nil, err
	}
	to, err := rawjson.Object(fresh)
	if err != nil {
		return nil, err
	}
	for _, m := range to {
		if had, ok := from.Get(m.Name); ok && bytes.Equal(had, m.Value) {
			continue
		}
		if old, err = rawjson.SetMember(old, m.Name, m.Value); err != nil {
			return nil, err
		}
	}
	for _, m := range from {
		if _, ok := to.Get(m.Name); ok {
			continue
		}
		if old, err = rawjson.DeleteMember(old, m.Name); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// Raw is the checkpoint as JSON.
func (c Checkpoint) Raw() (events.Raw, error) { return c.over(nil) }

// over is the checkpoint as JSON, spelled as the one that it replaces.
func (c Checkpoint) over(old events.Raw) (events.Raw, error) {
	if c.Messages == nil {
		c.Messages = []events.Raw{}
	}
	return encode("checkpoint", old, c, checkpointNumbers...)
}

// Raw is the job as JSON.
func (j Job) Raw() (events.Raw, error) { return encode("job", nil, j) }

// Raw is the event as JSON.
func (e Event) Raw() (events.Raw, error) { return encode("event", nil, e) }

// Raw is the setting as JSON, with its secrets.
func (s RunSetting) Raw() (events.Raw, error) { return encode("runSetting", nil, s) }
