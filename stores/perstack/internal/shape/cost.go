package shape

import (
	"cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// UnknownModel is the model of a cost whose run has no setting.
const UnknownModel = "unknown"

// EndsStep reports whether a type of event has the usage of its step: continueToNextStep, and the types that end the
// run. Exactly one such event ends a step.
func EndsStep(typ string) bool { return typ == "continueToNextStep" || outcomes[typ] != "" }

// Cost returns the usage of the step that the event ends, from its member step.usage, which covers the step alone. ok
// is false if the event ends no step or nothing was used. model is that of the run's setting, or "". id is that of the
// record: the same event costs once, whatever program stores it. Another event of the same step, as after a resume, is
// another branch that was paid for.
func (e Event) Cost(model string) (p *events.CostAccrued, id string, ok bool) {
	if !EndsStep(e.Type) {
		return nil, "", false
	}
	m, err := rawjson.Object(e.Raw)
	if err != nil {
		return nil, "", false
	}
	used, _ := m.Object("step").Get("usage")
	tokens, ok := Tokens(used)
	if !ok || tokens == (events.Tokens{}) {
		return nil, "", false
	}
	run := RunRef(e.Run)
	p = &events.CostAccrued{Model: cmp.Or(model, UnknownModel), Tokens: &tokens, Run: &run, Purpose: "run", Source: "reported", Raw: rawjson.AppendCompact(nil, used)}
	return p, events.DerivedID("cost", e.Job, e.Run, itoa(e.Step), e.ID), true
}

// Tokens returns the counts of a usage in disjoint classes. The original's input includes tokens from a cache, and its
// output includes reasoning. If a provider's part is larger than the whole, the counts are disjoint already.
func Tokens(used events.Raw) (events.Tokens, bool) {
	if len(used) == 0 || usage("usage", used) != nil {
		return events.Tokens{}, false
	}
	m, err := rawjson.Object(used)
	if err != nil {
		return events.Tokens{}, false
	}
	t := events.Tokens{Input: wholeOf(m, "inputTokens"), Output: wholeOf(m, "outputTokens"), Reasoning: wholeOf(m, "reasoningTokens"), CacheRead: wholeOf(m, "cachedInputTokens")}
	if t.CacheRead <= t.Input {
		t.Input -= t.CacheRead
	}
	if t.Reasoning > t.Output {
		t.Output = min(t.Output+t.Reasoning, maxWhole)
	}
	return t, true
}
