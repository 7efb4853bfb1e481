package catalog

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// workSubjects and workTypes are those of records that the view of work folds.
var (
	workSubjects = []string{"queue/q", "item/q/i", "queue/s", "item/s/i", "inbox/a", "inbox/b", "agent/a", "flow/f", "item/q/j"}
	workTypes    = []string{events.TypeSessionUpdated, events.TypeTurnAppended, events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished, events.TypeRunCreated, events.TypeSessionCreated,
		events.TypeSessionRewound, events.TypeThreadReplaced}
)

// workBefore are records that are there before those that are drawn: of each subject something.
var workBefore = []struct{ subject, kind, data string }{
	{"queue/q", events.TypeSessionCreated, `{"kind":"queue","createdAt":"2026-01-01T00:00:00Z","settings":{"maxAttempts":2}}`},
	{"queue/q", events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":1,"meta":{"id":"i","owner":"agent/a"}},{"thread":"main","turn":1,"meta":{"id":"j","after":["i"],"expiresAt":"2027-01-01T00:00:00Z"},"run":{"kind":"changeset","id":"j"}}]}`},
	{"queue/s", events.TypeSessionCreated, `{"kind":"queue","createdAt":"2026-01-01T00:00:00Z","settings":{"serial":true}}`},
	{"queue/s", events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":1,"meta":{"id":"i"}}]}`},
	{"item/q/i", events.TypeRunStarted, `{"run":{"kind":"item","id":"i"},"worker":"w","leaseUntil":1767225600000}`},
	{"inbox/a", events.TypeTurnAppended, `{"entries":[{"thread":"inbox","turn":1,"meta":{"id":"m","from":"b","to":"a","type":"t","thread":"t","expects":"x","deadline":"2026-01-02T00:00:00Z"}}]}`},
	{"agent/a", events.TypeSessionCreated, `{"kind":"agent","createdAt":"2026-01-01T00:00:00Z"}`},
	{"flow/f", events.TypeRunStarted, `{"run":{"kind":"workflow","id":"f"},"worker":"w","leaseUntil":1767225600000}`},
}

// Whatever records say, in whichever order after what is there: the view takes them, and what it
// keeps can be read again. The folds alone are fuzzed in package projector.
func TestWorkTakesAnything(t *testing.T) {
	testkit.NotUnderRace(t)
	path, n := filepath.Join(t.TempDir(), WorkFileName), 0
	w := newWork(path, current, nullLogger)
	_, _, err := w.Begin(t.Context())
	must(t, err)
	defer w.Close()
	apply := func(subject, typ string, data []byte) {
		t.Helper()
		n++
		rec := events.Record{Event: events.Event{ID: fmt.Sprint(n), Source: "urn:x", Type: typ, Subject: events.Session("", subject), ContentType: events.ContentTypeJSON, Data: data},
			Offset: events.Offset(n), Recorded: time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC)}
		must(t, w.Apply(t.Context(), projector.Decode(rec)))
		if err := w.Commit(t.Context(), projector.Cursor{Offset: rec.Offset, EventID: rec.ID, Recorded: rec.Recorded}); err != nil {
			t.Fatalf("%s %s %s: %v", subject, typ, data, err)
		}
	}
	for _, b := range workBefore {
		apply(b.subject, b.kind, []byte(b.data))
	}
	for _, data := range []string{
		`{"set":{"handover":{"at":18446744073709551615,"refusals":9223372036854775807,"last":"9999-12-31T23:59:59Z"},"cursors":{"inbox":9007199254740991},"status":"archived"}}`,
		`{"set":{"settings":{"lease":-9223372036854775808,"maxAttempts":9223372036854775807,"dead":"pass","serial":false},"lease":{"holder":"w","until":"0000-01-01T00:00:00Z"}}}`,
		`{"run":{"kind":"item","id":"i"},"worker":"w","attempt":9223372036854775807,"leaseUntil":9223372036854775807}`,
		`{"run":{"kind":"item","id":"i"},"kind":"released","leaseUntil":0,"fence":5}`, `{"run":{"kind":"item","id":"i"},"kind":"requeued"}`,
		`{"run":{"kind":"workflow","id":"f"},"kind":"moved","state":{"from":"a","to":"nowhere"},"leaseUntil":9223372036854775807,"fence":8}`,
		`{"run":{"kind":"item","id":"i"},"outcome":"stopped:dead","result":null,"fence":5}`,
		`{"entries":[{"thread":"inbox","turn":1,"meta":{"id":"m","from":"a","to":"a","replyTo":"m","about":{"inbox":"a","id":"m"},"malfunction":"x"}},{"thread":"main","turn":1,"meta":{"id":"k","after":["k","i","j"],"dueAt":"9999-12-31T23:59:59.999Z"}}]}`,
		`{"run":{"kind":"changeset","id":"j"},"owner":"flow/f","parent":{"session":"flow/f"},"after":[{"kind":"a","id":"b"}]}`,
	} {
		for _, sub := range workSubjects {
			for _, typ := range workTypes {
				apply(sub, typ, []byte(data))
			}
		}
	}
	r, err := OpenWork(t.Context(), filepath.Dir(path))
	must(t, err)
	defer r.Close()
	page := WorkPage{Namespace: "default"}
	_, err = r.Queues(t.Context(), page)
	must(t, err)
	_, err = r.Items(t.Context(), ItemQuery{Namespace: "default", Queue: "q"})
	must(t, err)
	_, err = r.Inboxes(t.Context(), page)
	must(t, err)
	_, err = r.Agents(t.Context(), page, "")
	must(t, err)
	_, err = r.Flows(t.Context(), page, false)
	must(t, err)
	for _, what := range dues {
		_, err = r.Due(t.Context(), what, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 0)
		must(t, err)
	}
}
