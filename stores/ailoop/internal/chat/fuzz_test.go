package chat_test

import (
	"bytes"
	"testing"

	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// A parsed snapshot of any writer is written and parses to the same snapshot. Its second written form has the same
// bytes.
func FuzzSnapshot(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"messages":[],"pinned":[]}`,
		`{"pinned":[true],"x":{"y":1e400},"messages":[{"User":{"blocks":[{"Text":{"text":"a\u00e9\\"}}]}}],"version":1,"":[ ]}`,
		`{"version":1,"messages":[{"User":{"blocks":[{"Text":"old"}]}},{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"Error":"no"}}}]}}],"pinned":[false,true]}`,
		`{"version":1,"messages":[{"Assistant":{"blocks":[{"ToolCall":{"id":"c","name":"n","args":{"a":[1.0,{}]}}},{"Reasoning":{"text":"","signature":null}}]}}],"pinned":[false]}`,
		`{"version":1,"messages":[{"User":{"blocks":[{"Image":{"source":{"type":"url","url":"u"}}}]}}],"pinned":[]}`,
		"{\n  \"version\": 1,\n  \"messages\": [],\n  \"pinned\": []\n}", `{"version":2}`, `{`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, old, err := chat.ParseAny(data)
		today, strict := chat.Parse(data)
		if (strict == nil) != (err == nil && !old) || strict == nil && !chat.Equal(s, today) {
			t.Fatalf("the reader of the current form: %+v, %v; the reader of all forms: %+v, %v, %v", today, strict, s, old, err)
		}
		if err != nil {
			return
		}
		pretty := chat.AppendPretty(nil, s)
		for _, written := range [][]byte{chat.Append(nil, s), pretty} {
			back, err := chat.Parse(written)
			if err != nil || !chat.Equal(s, back) || len(back.Pinned) != len(s.Messages) {
				t.Fatalf("the written form %s parses to %+v, %v", written, back, err)
			}
			if again := chat.AppendPretty(nil, back); !bytes.Equal(again, pretty) {
				t.Errorf("the second written form is\n%s, want\n%s", again, pretty)
			}
		}
	})
}
