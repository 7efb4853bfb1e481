package events_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
)

// A misspelled type of the vocabulary is refused: its event would be stored without effect.
func TestForeignTypes(t *testing.T) {
	event := func(typ string) events.Event {
		return events.Event{ID: "1", Source: "urn:test", Type: typ, Subject: events.Session("", "s"), Data: []byte(`{}`)}
	}
	t.Run("B-29 below tally", func(t *testing.T) {
		for typ, nearest := range map[string]string{
			"tally.turn.appendd.v1":        events.TypeTurnAppended,
			"tally.turn.appended.v2":       events.TypeTurnAppended,
			"tally.turn.appended":          events.TypeTurnAppended,
			"tally.turns.append.v1":        events.TypeTurnAppended,
			"tally.Turn.Appended.v1":       events.TypeTurnAppended,
			"tally.run.finish.v1":          events.TypeRunFinished,
			"tally.rewound.v1":             events.TypeSessionRewound,
			"tally.document.write.v1":      events.TypeDocumentWritten,
			"tally.checkpoint.cleared.v10": events.TypeCheckpointCleared,
			"tally.cost":                   events.TypeCostAccrued,
			"tally.":                       "tally.",
			"tally.noticed":                "tally.",
		} {
			err := event(typ).Validate()
			mustBeInvalid(t, typ, err, "type")
			if err != nil && !strings.Contains(err.Error(), "the nearest one is "+nearest) {
				t.Errorf("%s: got %v, want the nearest type %s in it", typ, err, nearest)
			}
		}
		mustBeInvalid(t, "the log's own", event(events.TypeUnitAppended).Validate(), "type")
		mustBeInvalid(t, "a long type", event("org."+strings.Repeat("x", events.MaxIDLen)).Validate(), "type")
	})
	t.Run("B-29 of others", func(t *testing.T) {
		for _, typ := range []string{"tally", "tallyho.turn.appended.v1", "Tally.turn.appended.v1", "org.tally.turn.appended.v1", "com.example.noticed", strings.Repeat("x", events.MaxIDLen)} {
			if err := event(typ).Validate(); err != nil {
				t.Errorf("%s: %v", typ, err)
			}
		}
	})
	t.Run("B-29 in a log", func(t *testing.T) {
		e := event("tally.turn.appended.v2")
		if p, err := events.Decode(e.Type, e.Data); p != nil || err != nil {
			t.Errorf("Decode of an unknown type = %v, %v, want nil, nil", p, err)
		}
		text, err := events.AppendJSON(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := events.ParseJSON("", text)
		if err != nil || back.Type != e.Type {
			t.Errorf("ParseJSON(%s) = %v, %v", text, back, err)
		}
	})
}
