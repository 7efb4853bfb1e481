package shape_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

const (
	usageText      = `{"inputTokens":10,"outputTokens":5,"reasoningTokens":2,"totalTokens":15,"cachedInputTokens":4}`
	expertText     = `{"key":"e@1","name":"e","version":"1"}`
	jobText        = `{"id":"j","status":"running","coordinatorExpertKey":"e","totalSteps":0,"usage":` + usageText + `,"startedAt":1700000000000}`
	checkpointText = `{"id":"c","jobId":"j","runId":"r","status":"proceeding","stepNumber":3,"messages":[{"id":"m","type":"userMessage","contents":[{"id":"p","type":"textPart","text":"hi"}]}],"expert":` +
		expertText + `,"delegatedBy":{"expert":` + expertText + `,"toolCallId":"t","toolName":"n","checkpointId":"c0","runId":"r0"},"usage":` + usageText + `}`
	eventText   = `{"id":"e1","expertKey":"e","timestamp":1700000000001,"jobId":"j","runId":"r","stepNumber":3,"type":"continueToNextStep","step":{"usage":` + usageText + `}}`
	settingText = `{"model":"m1","providerConfig":{"apiKey":"k"},"jobId":"j","runId":"r","expertKey":"e","input":{"text":"go"},"experts":{},"startedAt":1,"updatedAt":2}`
)

// An error names the member and its position. Unknown members are accepted.
func TestSchema(t *testing.T) {
	parsers := map[string]func(string) error{
		"job":        func(s string) error { _, err := shape.ParseJob(events.Raw(s)); return err },
		"checkpoint": func(s string) error { _, err := shape.ParseCheckpoint(events.Raw(s)); return err },
		"event":      func(s string) error { _, err := shape.ParseEvent(events.Raw(s)); return err },
		"runSetting": func(s string) error { _, err := shape.ParseSetting(events.Raw(s)); return err },
	}
	whole := map[string]string{"job": jobText, "checkpoint": checkpointText, "event": eventText, "runSetting": settingText}
	for _, c := range []struct{ what, old, new, field string }{
		{"job", "", "", ""},
		{"job", `"id":"j"`, `"id":"j","more":{"x":[1.50]}`, ""},
		{"job", `"id":"j"`, `"id":7`, "job.id"},
		{"job", `"status":"running",`, ``, "job.status"},
		{"job", `"running"`, `"paused"`, "job.status"},
		{"job", `"totalSteps":0`, `"totalSteps":0.5`, "job.totalSteps"},
		{"job", `"totalSteps":0`, `"totalSteps":0,"maxSteps":null`, "job.maxSteps"},
		{"job", `"outputTokens":5,`, ``, "job.usage.outputTokens"},
		{"job", `1700000000000`, `99999999999999999999`, "job.startedAt"},
		{"job", `"totalSteps":0`, `"totalSteps":-0,"maxSteps":1.5e1`, ""},
		{"job", `"totalSteps":0`, `"totalSteps":1e400`, "job.totalSteps"},
		{"job", `"coordinatorExpertKey":"e"`, `"coordinatorExpertKey":"\ud83d"`, ""},
		{"job", `"id":"j"`, `"id":"\ud83d"`, "job.id"},
		{"job", `{"id"`, `[{"id"`, "job"},
		{"checkpoint", "", "", ""},
		{"checkpoint", `"stepNumber":3`, `"stepNumber":-1`, "checkpoint.stepNumber"},
		{"checkpoint", `"type":"userMessage"`, `"type":"noMessage"`, "checkpoint.messages[0].type"},
		{"checkpoint", `"type":"textPart"`, `"type":"noPart"`, "checkpoint.messages[0].contents[0].type"},
		{"checkpoint", `"toolName":"n",`, ``, "checkpoint.delegatedBy.toolName"},
		{"checkpoint", `"stepNumber":3`, `"stepNumber":3,"metadata":{"runtime":"local","open":[1]}`, ""},
		{"checkpoint", `"stepNumber":3`, `"stepNumber":3,"error":{"name":"n","message":"m"}`, "checkpoint.error.isRetryable"},
		{"checkpoint", `"stepNumber":3`, `"stepNumber":3,"pendingToolCalls":[{"id":"","skillName":"","toolName":"","args":{}}]`, "checkpoint.pendingToolCalls[0].id"},
		{"event", "", "", ""},
		{"event", `"timestamp":1700000000001`, `"timestamp":"NaN"`, "event.timestamp"},
		{"event", `"timestamp":1700000000001`, `"timestamp":-1`, "event.timestamp"},
		{"event", `"type":"continueToNextStep"`, `"type":"a-b/../c"`, ""},
		{"event", `"type":"continueToNextStep"`, `"type":""`, "event.type"},
		{"runSetting", "", "", ""},
		{"runSetting", `"experts":{}`, `"experts":{"a":"sk-secret"}`, `runSetting.experts["a"]`},
		{"runSetting", `"updatedAt":2`, `"updatedAt":2,"timeout":"sk-secret"`, "runSetting.timeout"},
	} {
		text := strings.Replace(whole[c.what], c.old, c.new, 1)
		err := parsers[c.what](text)
		switch invalid, ok := err.(*events.InvalidError); {
		case c.field == "" && err != nil, c.field != "" && (!ok || invalid.Field != c.field):
			t.Errorf("%s\ngot the error %v, want one of %q", text, err, c.field)
		case err != nil && strings.Contains(err.Error(), "sk-"):
			t.Errorf("the error contains a secret: %v", err)
		}
	}
}

// Each type of event becomes exactly one record. Unknown types become progress of that kind.
func TestPayload(t *testing.T) {
	for typ, want := range map[string]string{
		"startRun": events.TypeRunStarted, "callTools": events.TypeRunProgressed, "resumeToolCalls": events.TypeRunProgressed, "a-b": events.TypeRunProgressed,
		"completeRun": "completed", "stopRunByInteractiveTool": "stopped:interactive-tool", "stopRunByDelegate": "stopped:delegate",
		"stopRunByExceededMaxSteps": "stopped:max-steps", "stopRunByError": "failed",
	} {
		raw := events.Raw(strings.Replace(eventText, "continueToNextStep", typ, 1))
		e, err := shape.ParseEvent(raw)
		if err != nil {
			t.Fatal(err)
		}
		p := e.Payload(raw, nil)
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		have := p.EventType()
		if f, ok := p.(*events.RunFinished); ok {
			have = f.Outcome
		}
		run, back, _ := shape.RawOf(p)
		if have != want || run != shape.RunRef("r") || string(back) != string(raw) {
			t.Errorf("%s becomes %s of %v", typ, have, run)
		}
	}
}

// Each status of a job has its own status of a session.
func TestJobFields(t *testing.T) {
	seen := map[string]bool{}
	for _, status := range []string{"running", "completed", "stoppedByMaxSteps", "stoppedByInteractiveTool", "stoppedByError"} {
		j, err := shape.ParseJob(events.Raw(strings.Replace(jobText, "running", status, 1)))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []events.Payload{j.Created(), j.Updated()} {
			if err := p.Validate(); err != nil {
				t.Errorf("%s: %v", status, err)
			}
		}
		have, _ := j.Fields().Get("status")
		if seen[string(have)] {
			t.Errorf("the statuses %s and another one are both %s", status, have)
		}
		seen[string(have)] = true
	}
}

// The classes of tokens are disjoint, however the provider counts.
func TestTokens(t *testing.T) {
	for text, want := range map[string]events.Tokens{
		usageText: {Input: 6, Output: 5, Reasoning: 2, CacheRead: 4},
		`{"inputTokens":1,"outputTokens":2,"reasoningTokens":9,"totalTokens":0,"cachedInputTokens":5}`: {Input: 1, Output: 11, Reasoning: 9, CacheRead: 5},
	} {
		if have, ok := shape.Tokens(events.Raw(text)); !ok || have != want {
			t.Errorf("%s counts %+v, want %+v", text, have, want)
		}
	}
	e, err := shape.ParseEvent(events.Raw(eventText))
	if err != nil {
		t.Fatal(err)
	}
	p, id, ok := e.Cost("")
	q, again, _ := e.Cost("m")
	if !ok || p.Validate() != nil || id != again || p.Model != shape.UnknownModel || q.Model != "m" {
		t.Errorf("the step costs %+v (%s), and with a model %+v (%s)", p, id, q, again)
	}
	e.Type = "callTools"
	if _, _, ok := e.Cost(""); ok {
		t.Error("an event inside a step has the cost of the step")
	}
}

// EventName names the file of an event as the original program does.
func TestEventName(t *testing.T) {
	if name := shape.EventName(17, 2, "callTools"); name != "event-17-2-callTools" {
		t.Errorf("the file name is %s", name)
	}
}

// Numbers count by their value, and only those of the named members are respelled.
func TestPlain(t *testing.T) {
	raw := events.Raw(`{"a":1.0,"b":1.0,"c":{"d":2e3, "e":0.5,"f":"1.0"},"g":-0,"h":1e30}`)
	have, err := shape.Plain(raw, "a", "c", "g", "h")
	if want := `{"a":1,"b":1.0,"c":{"d":2000, "e":0.5,"f":"1.0"},"g":0,"h":1e30}`; err != nil || string(have) != want {
		t.Errorf("%v: got %s, want %s", err, have, want)
	}
}

// A later call writes the setting by its schema: in its order, with defaults for missing members, without unknown ones,
// and with a new updatedAt. Values keep their bytes. The expected results are those of a schema in another language.
func TestSettingFile(t *testing.T) {
	touched := shape.Touched("r", 1700000000123).TouchedAt
	for raw, want := range map[string]string{
		settingText: `{"model":"m1","providerConfig":{"apiKey":"k"},"jobId":"j","runId":"r","expertKey":"e","input":{"text":"go"},"experts":{},"reasoningBudget":"low","maxSteps":100,"maxRetries":5,"timeout":300000,"startedAt":1,"updatedAt":1700000000123}`,
		`{"x":1,"env":{"B":"b","A":"\u00e9"},"updatedAt":2,"startedAt":1,"verbose":true,"timeout":7,"experts":{"e":{"x":1,"skills":{"s":{"y":2}},"key":"e"}},"input":{"x":1,"interactiveToolCallResult":{"text":"t","toolCallId":"c","x":2}},"expertKey":"e","runId":"r","jobId":"j","providerConfig":{"z":1,"a":2},"model":"m1"}`: `{"model":"m1","providerConfig":{"z":1,"a":2},"jobId":"j","runId":"r","expertKey":"e","input":{"interactiveToolCallResult":{"toolCallId":"c","text":"t"}},"experts":{"e":{"key":"e","skills":{"s":{"y":2}}}},"reasoningBudget":"low","maxSteps":100,"maxRetries":5,"timeout":7,"startedAt":1,"updatedAt":1700000000123,"env":{"B":"b","A":"\u00e9"},"verbose":true}`,
	} {
		have, err := shape.SettingFile(events.Raw(raw), touched)
		if err != nil || string(have) != want {
			t.Errorf("%v: the setting is\n%s, want\n%s", err, have, want)
		}
		if again, err := shape.SettingFile(have, touched); err != nil || string(again) != want {
			t.Errorf("%v: the setting written a second time is %s", err, again)
		}
		if have, err = shape.SettingFile(events.Raw(raw), ""); err != nil || string(have) != raw {
			t.Errorf("%v: the setting without a change is %s", err, have)
		}
	}
}

// DelegatedBy reads the parent from a checkpoint, and from an event that starts a run with one.
func TestDelegatedBy(t *testing.T) {
	want := events.Lineage{Run: "r0", Checkpoint: "c0", ToolCall: "t"}
	for _, text := range []string{checkpointText, `{"initialCheckpoint":` + checkpointText + `}`} {
		if have, ok := shape.DelegatedBy(events.Raw(text)); !ok || have != want {
			t.Errorf("%s: got %+v", text, have)
		}
	}
	if _, ok := shape.DelegatedBy(events.Raw(jobText)); ok {
		t.Error("DelegatedBy accepted a job")
	}
}

// Names of threads and documents are at most as long as the log allows, and no two runs share one.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("r", 600)
	for _, name := range []string{shape.RunThread(long, 1), shape.RunThread(long, 12345678), shape.SecretID(long, "r")} {
		if len("results/"+name) > events.MaxIDLen+len("results/") || name == "" {
			t.Errorf("%s has %d bytes", name, len(name))
		}
	}
	if shape.RunThread(long, 1) == shape.RunThread(long+"x", 1) || shape.SecretID(long, "r") == shape.SecretID(long, "s") {
		t.Error("two runs share a name")
	}
	if shape.SecretID("a/b", "c") == shape.SecretID("a", "b/c") {
		t.Error("two runs share a document")
	}
}

// No input makes the parsers panic, and accepted input becomes valid records.
func FuzzShape(f *testing.F) {
	for _, text := range []string{jobText, checkpointText, eventText, settingText} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var list []events.Payload
		if j, err := shape.ParseJob(raw); err == nil {
			list = append(list, j.Created(), j.Updated())
		}
		if c, err := shape.ParseCheckpoint(raw); err == nil {
			list = append(list, c.Saved(raw, nil, 0))
		}
		if e, err := shape.ParseEvent(raw); err == nil {
			list = append(list, e.Payload(raw, nil))
			if p, _, ok := e.Cost(""); ok {
				list = append(list, p)
			}
		}
		if s, err := shape.ParseSetting(raw); err == nil {
			list = append(list, s.Created(raw, ""))
		}
		for _, p := range list {
			if err := p.Validate(); err != nil {
				t.Errorf("%s of %s: %v", p.EventType(), raw, err)
			}
		}
	})
}
