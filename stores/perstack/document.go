package perstack

import (
	"bytes"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// ParseJob parses a job. If it violates the original's schema, the error is an *events.InvalidError that names the
// member.
func ParseJob(raw events.Raw) (Job, error) {
	if _, err := shape.ParseJob(raw); err != nil {
		return Job{}, err
	}
	return decode[Job]("job", raw, jobNumbers...)
}

// ParseCheckpoint parses a checkpoint, as ParseJob does.
func ParseCheckpoint(raw events.Raw) (Checkpoint, error) {
	if _, err := shape.ParseCheckpoint(raw); err != nil {
		return Checkpoint{}, err
	}
	return decode[Checkpoint]("checkpoint", raw, checkpointNumbers...)
}

// ParseEvent parses an event, as ParseJob does.
func ParseEvent(raw events.Raw) (Event, error) {
	if _, err := shape.ParseEvent(raw); err != nil {
		return Event{}, err
	}
	return decode[Event]("event", raw, "timestamp", "stepNumber")
}

// ParseRunSetting parses the setting of a run, as ParseJob does.
func ParseRunSetting(raw events.Raw) (RunSetting, error) {
	if _, err := shape.ParseSetting(raw); err != nil {
		return RunSetting{}, err
	}
	return decode[RunSetting]("runSetting", raw, "maxSteps", "maxRetries", "timeout", "startedAt", "updatedAt")
}

// jobNumbers are the members of a job with numbers.
var jobNumbers = []string{"totalSteps", "maxSteps", "startedAt", "finishedAt", "usage"}

var checkpointNumbers = []string{"stepNumber", "contextWindow", "retryCount", "usage", "error"}

var usageNumbers = []string{"inputTokens", "outputTokens", "reasoningTokens", "totalTokens", "cachedInputTokens"}

// decode parses a document. Numbers of the named members may have any spelling.
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

// encode encodes a document. Parts that are equal to the replaced one's keep its order of members, spelling of numbers
// and unknown members.
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
		return fresh, nil // the replaced value is not such a document
	}
	was, err := rawjson.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("perstack: %s: %v", what, err)
	}
	return change(old, was, fresh)
}

// change applies the difference between two documents to a third one.
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

// Raw returns the checkpoint as JSON.
func (c Checkpoint) Raw() (events.Raw, error) { return c.over(nil) }

// over returns the checkpoint as JSON, spelled like the one that it replaces.
func (c Checkpoint) over(old events.Raw) (events.Raw, error) {
	if c.Messages == nil {
		c.Messages = []events.Raw{}
	}
	return encode("checkpoint", old, c, checkpointNumbers...)
}

// Raw returns the job as JSON.
func (j Job) Raw() (events.Raw, error) { return encode("job", nil, j) }

// Raw returns the event as JSON.
func (e Event) Raw() (events.Raw, error) { return encode("event", nil, e) }

// Raw returns the setting as JSON, with its secrets.
func (s RunSetting) Raw() (events.Raw, error) { return encode("runSetting", nil, s) }
