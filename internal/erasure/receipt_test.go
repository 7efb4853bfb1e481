package erasure_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
)

func TestReceipt(t *testing.T) {
	a, b := events.Session("", "a"), events.Session("other", "b")
	p := erasure.Plan{Receipt: "r7k2p9", Namespace: "default", By: "me", Reason: "asked", Scope: "session a", At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Records:  []erasure.Record{{Offset: 1, Subject: a, Bytes: 10}, {Offset: 3, Subject: b, Bytes: 5}, {Offset: 4, Subject: a, Bytes: 1}},
		Subjects: []events.Subject{a, b}, Unreached: []string{"exports"}}
	t.Run("X-18 who, when, scope, records, bytes, reason", func(t *testing.T) {
		e, err := p.Event()
		if err != nil {
			t.Fatal(err)
		}
		e.DataSchema = ""
		const want = `{"by":"me","at":"2026-03-01T12:00:00.000Z","reason":"asked","scope":"session a","records":3,"bytes":16,"subjects":[{"subject":"session/a","records":2,"bytes":11},{"subject":"session/b","namespace":"other","records":1,"bytes":5}],"unreached":["exports"]}`
		if e.Validate() != nil || e.Subject != events.Document("", erasure.KindReceipt, "r7k2p9") || string(e.Data) != want {
			t.Errorf("%v %v:\n%s, want\n%s", e.Validate(), e.Subject, e.Data, want)
		}
		if again, _ := p.Event(); !again.Equal(e) {
			t.Error("the second event is another one")
		}
	})
	t.Run("X-18 a receipt is bounded", func(t *testing.T) {
		for i := range 5000 {
			p.Records = append(p.Records, erasure.Record{Offset: events.Offset(10 + i), Subject: events.Session("", fmt.Sprint(i)), Bytes: 1})
			p.Unreached = append(p.Unreached, "x")
		}
		says := p.Says()
		text, _ := json.Marshal(says)
		if len(says.Subjects) != 1000 || says.More != 4002 || says.Bytes != 5016 || len(says.Unreached) != 1001 || len(text) > 1<<20 {
			t.Errorf("%d subjects, %d more, %d bytes lost, %d lines, %d bytes", len(says.Subjects), says.More, says.Bytes, len(says.Unreached), len(text))
		}
	})
}
