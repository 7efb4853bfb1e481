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

// With arbitrary records, in any order after existing ones, the view folds them, and its rows can be read again.
// Package projector fuzzes the folds alone.
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
	for _, b := range testkit.WorkBefore {
		apply(b.Subject, b.Kind, []byte(b.Data))
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
		for _, sub := range testkit.WorkSubjects {
			for _, typ := range testkit.WorkTypes {
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
