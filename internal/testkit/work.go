package testkit

import "github.com/tallylog/tally/events"

// WorkSubjects and WorkTypes are the subjects and types of records that the view of work folds.
var (
	WorkSubjects = []string{"queue/q", "item/q/i", "queue/s", "item/s/i", "inbox/a", "inbox/b", "agent/a", "flow/f", "item/q/j"}
	WorkTypes    = []string{events.TypeSessionUpdated, events.TypeTurnAppended, events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished, events.TypeRunCreated, events.TypeSessionCreated,
		events.TypeSessionRewound, events.TypeThreadReplaced}
)

// WorkBefore has records that precede the drawn ones: at least one of each subject.
var WorkBefore = []struct{ Subject, Kind, Data string }{
	{"queue/q", events.TypeSessionCreated, `{"kind":"queue","createdAt":"2026-01-01T00:00:00Z","settings":{"maxAttempts":2}}`},
	{"queue/q", events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":1,"meta":{"id":"i","owner":"agent/a"}},{"thread":"main","turn":1,"meta":{"id":"j","after":["i"],"expiresAt":"2027-01-01T00:00:00Z"},"run":{"kind":"changeset","id":"j"}}]}`},
	{"queue/s", events.TypeSessionCreated, `{"kind":"queue","createdAt":"2026-01-01T00:00:00Z","settings":{"serial":true}}`},
	{"queue/s", events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":1,"meta":{"id":"i"}}]}`},
	{"item/q/i", events.TypeRunStarted, `{"run":{"kind":"item","id":"i"},"worker":"w","leaseUntil":1767225600000}`},
	{"inbox/a", events.TypeTurnAppended, `{"entries":[{"thread":"inbox","turn":1,"meta":{"id":"m","from":"b","to":"a","type":"t","thread":"t","expects":"x","deadline":"2026-01-02T00:00:00Z"}}]}`},
	{"agent/a", events.TypeSessionCreated, `{"kind":"agent","createdAt":"2026-01-01T00:00:00Z"}`},
	{"flow/f", events.TypeRunStarted, `{"run":{"kind":"workflow","id":"f"},"worker":"w","leaseUntil":1767225600000}`},
}
