package projector_test

import (
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// Two arbitrary records, in either order after existing ones: the folds of queues and mail terminate, and all their
// methods return.
func FuzzWork(f *testing.F) {
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
		for sub := range testkit.WorkSubjects {
			f.Add(byte(sub), byte(sub), []byte(data), byte(4), byte(3), []byte(`{"run":{"kind":"item","id":"i"},"kind":"renewed","leaseUntil":1,"fence":5}`))
		}
	}
	f.Fuzz(func(t *testing.T, sub1, type1 byte, data1 []byte, sub2, type2 byte, data2 []byte) {
		var mail projector.Mail
		n, sessions := 0, make(map[string]*projector.Session)
		queues := map[string]*projector.Work{"q": projector.NewWork("default", "q", true), "s": projector.NewWork("default", "s", false)}
		apply := func(subject, typ string, data []byte) {
			n++
			rec := events.Record{Event: events.Event{ID: "x", Source: "urn:x", Type: typ, Subject: events.Session("", subject), ContentType: events.ContentTypeJSON, Data: data},
				Offset: events.Offset(n), Recorded: time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC)}
			fact := projector.Decode(rec)
			mail.Apply(fact)
			for _, q := range queues {
				if q.Concerns(rec.Subject) {
					q.Apply(fact)
				}
			}
			if sessions[subject] == nil {
				sessions[subject] = projector.NewSession(rec.Subject)
			}
			sessions[subject].Apply(fact)
		}
		for _, b := range testkit.WorkBefore {
			apply(b.Subject, b.Kind, []byte(b.Data))
		}
		apply(testkit.WorkSubjects[int(sub1)%len(testkit.WorkSubjects)], testkit.WorkTypes[int(type1)%len(testkit.WorkTypes)], data1)
		apply(testkit.WorkSubjects[int(sub2)%len(testkit.WorkSubjects)], testkit.WorkTypes[int(type2)%len(testkit.WorkTypes)], data2)
		for _, q := range queues {
			for _, i := range q.Items {
				if i.Attempts < 0 || i.Due().IsZero() && i.Fence != 0 {
					t.Errorf("item %+v has negative attempts, or a fence without a due time", i)
				}
				q.Waits(i)
				i.Decides(q.Queue.Settings)
			}
		}
		for _, in := range mail.Inboxes {
			in.Unread()
			if h := in.Fields.HandOver; h != nil && h.At > events.MaxOffset {
				t.Errorf("hand-over %+v is beyond MaxOffset", h)
			} else if h != nil {
				h.Retry()
			}
		}
		mail.Open()
	})
}
