package shape

import (
	"github.com/tallylog/tally/events"
)

// setting is the setting of a run. Members with a default in the original may be missing.
var setting = object(must("model", text), must("providerConfig", object()), must("jobId", id), must("runId", id), must("expertKey", text),
	must("input", object(may("text", text), may("interactiveToolCallResult", object()))), must("experts", each(object())),
	may("reasoningBudget", anything), may("maxSteps", count), may("maxRetries", count), may("timeout", count), must("startedAt", count), must("updatedAt", count),
	may("perstackApiBaseUrl", text), may("perstackApiKey", text), may("perstackBaseSkillCommand", list(text)), may("env", each(text)), may("proxyUrl", text), may("verbose", boolean))

// Setting has the members of a run's setting that the log stores beside its raw value.
type Setting struct {
	Job       string
	Run       string
	Expert    string // key
	Model     string
	MaxSteps  int64
	StartedAt int64 // Unix milliseconds
	UpdatedAt int64
	Raw       events.Raw
}

// ParseSetting checks the setting of a run against the original's schema, as ParseJob does. Its errors name members and
// never quote a value, which may be a secret.
func ParseSetting(raw events.Raw) (Setting, error) {
	m, err := parse("runSetting", raw, setting)
	if err != nil {
		return Setting{}, err
	}
	return Setting{Job: m.Text("jobId"), Run: m.Text("runId"), Expert: m.Text("expertKey"), Model: m.Text("model"), MaxSteps: wholeOf(m, "maxSteps"),
		StartedAt: wholeOf(m, "startedAt"), UpdatedAt: wholeOf(m, "updatedAt"), Raw: raw}, nil
}

// Created returns the event of a run's first setting. raw is the setting with placeholders, secrets the document with
// their values, or "".
func (s Setting) Created(raw events.Raw, secrets events.DocRef) *events.RunCreated {
	p := &events.RunCreated{Run: RunRef(s.Run), Setting: raw, Secrets: secrets, CreatedAt: stamp(s.StartedAt), MaxSteps: s.MaxSteps}
	if s.Model != "" {
		p.Models = []string{s.Model}
	}
	return p
}

// Touched returns the event of a later call, of which only the time counts.
func Touched(run string, ms int64) *events.RunAnnotated {
	return &events.RunAnnotated{Run: RunRef(run), TouchedAt: stamp(ms)}
}

// SecretID returns the id of the document with the secrets of a run's setting.
func SecretID(job, run string) string {
	name := events.EscapeID(job) + "/" + events.EscapeID(run)
	if len(name) > events.MaxIDLen {
		return "long/" + events.DerivedID("secret", job, run)
	}
	return name
}

// RunThread returns the thread of the n-th writer of a run, from 1. The name leaves room for a suffix.
func RunThread(run string, n int) string {
	const room = 64
	name := "run/" + run
	if len(name) > events.MaxIDLen-len("results/")-room {
		name = "run/long/" + events.DerivedID("thread", run)
	}
	if n > 1 {
		name += "/" + itoa(int64(n))
	}
	return name
}
