package log

import (
	"testing"

	"github.com/tallylog/tally/events"
)

// FuzzRedoRecord checks that any data of a redo record are refused, or decode to parts that encode to the same record.
func FuzzRedoRecord(f *testing.F) {
	f.Add([]byte(`{"events":[{"subject":"tally.v1.12.default.session.a","event":{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"session/a","data":{"a": 1}}}]}`))
	f.Add([]byte(`{"events":[{"subject":"tally.v1.29.x.doc.a=2Fb","event":{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"document/doc/a%2Fb","data_base64":"/w=="}}]}`))
	f.Add([]byte(`{"events":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parts, err := partsOf(events.Event{Data: data})
		if err != nil || len(parts) == 0 {
			return
		}
		e, err := redoRecord(parts)
		if err != nil {
			t.Fatal(err)
		}
		other, err := partsOf(e)
		if err != nil || len(other) != len(parts) {
			t.Fatalf("%d parts, %d after encoding and decoding: %v", len(parts), len(other), err)
		}
		for i, p := range parts {
			if len(other[i].events) != len(p.events) || other[i].sub != p.sub {
				t.Fatalf("part %d differs after encoding and decoding", i)
			}
			for n, e := range p.events {
				if !sameEvent(e, other[i].events[n]) || other[i].msgs[n].ID != p.msgs[n].ID {
					t.Fatalf("part %d, event %d: %+v, after encoding and decoding %+v", i, n, e, other[i].events[n])
				}
			}
		}
	})
}
