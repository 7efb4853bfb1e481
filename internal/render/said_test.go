package render

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// The tools of a turn are its calls, and its results that are errors.
func TestSaid(t *testing.T) {
	turn := `{"Assistant":{"blocks":[{"ToolCall":{"id":"c1","name":"read","args":{}}},{"Text":{"text":"and"}},
		{"ToolResult":{"id":"c1","content":{"blocks":[],"is_error":true}}},{"ToolResult":{"id":"c2","content":{"blocks":[],"is_error":false}}}]}}`
	s := Said(projector.Turn{Raw: events.Raw(turn)})
	want := []projector.ToolUse{{Tool: "read", Call: "c1"}, {Call: "c1", Error: true}}
	if len(s.Tools) != 2 || s.Tools[0] != want[0] || s.Tools[1] != want[1] || !strings.Contains(s.Text, "and") {
		t.Errorf("got %+v", s)
	}
	if s := Said(projector.Turn{Raw: events.Raw("{}"), Erased: "r7k2p9"}); s.Text != "" || s.Roles != "" {
		t.Errorf("an erased turn has %+v", s)
	}
	if s := Said(projector.Turn{Bytes: []byte("x")}); s.Text != "" || s.Tools != nil {
		t.Errorf("a turn of bytes has %+v", s)
	}
}
