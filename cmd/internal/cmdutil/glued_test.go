package cmdutil

import (
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/message"
)

// If a program is killed in the middle of a line, the next program appends its line to the rest. Readers of all agents
// still read and show the second line.
func TestGlued(t *testing.T) {
	type example struct{ agent, name, first, said string }
	cases := []example{
		{"claude", "-p/s.jsonl", `{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"One"}}`,
			`{"type":"assistant","uuid":"b","parentUuid":"a","sessionId":"s","timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"assistant","model":"m","content":[{"type":"text","text":"Two {\"a\":1}."}]}}`},
		{"codex", "sessions/2026/01/02/" + rollout, `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"019b7c5e-0000-7000-8000-0000000000c1"}}`,
			`{"timestamp":"2026-01-02T03:04:06.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Two {\"a\":1}."}]}}`},
		{"codex", "sessions/2026/01/02/" + rollout, `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"019b7c5e-0000-7000-8000-0000000000c1"}}`,
			`{"type":"response_item","timestamp":"2026-01-02T03:04:06.000Z","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Two {\"a\":1}."}]}}`},
		{"gemini", "p/chats/session-2026-01-02T05-00-0badcafe.jsonl", `{"sessionId":"0badcafe-1","projectHash":"00","startTime":"2026-01-02T05:00:00.000Z"}`,
			`{"id":"b","timestamp":"2026-01-02T05:00:01.000Z","type":"gemini","content":"Two {\"a\":1}.","model":"m"}`},
		{"pi", piFile, `{"type":"session","version":3,"id":"019b7c6e","timestamp":"2026-01-02T06:00:00.000Z","cwd":"/pier"}`,
			`{"type":"message","id":"b","parentId":null,"timestamp":"2026-01-02T06:00:01.000Z","message":{"role":"assistant","content":[{"type":"text","text":"Two {\"a\":1}."}],"model":"m"}}`},
	}
	for _, a := range Agents {
		recorded := a.Name() == "acp" || a.Name() == "exec" // tally itself writes their files
		if !recorded && !slices.ContainsFunc(cases, func(c example) bool { return c.agent == a.Name() }) {
			t.Errorf("%s has no case here: add the name of a file, its first line and a line of the model", a.Name())
		}
	}
	for _, c := range cases {
		t.Run("B-23 "+c.agent, func(t *testing.T) {
			for cut := 1; cut < len(c.said); cut++ {
				agent, _ := AgentNamed(c.agent)
				f, ok := agent.File(c.name, []byte(c.first))
				if !ok {
					t.Fatalf("%s was not recognised as a file of %s", c.name, c.agent)
				}
				fold := agent.Fold(f)
				fold.Line(agents.Span{End: int64(len(c.first))}, []byte(c.first))
				line := c.said[:cut] + c.said
				m := fold.Line(agents.Span{Start: int64(len(c.first)), End: int64(len(c.first) + len(line))}, []byte(line))
				if m.Thread != agents.Main || m.Time.IsZero() {
					t.Fatalf("after %q: got the line in thread %s, at %v", c.said[:cut], m.Thread, m.Time)
				}
				read, ok := message.ReadGlued([]byte(line))
				last := len(read.Parts) - 1
				if !ok || last < 0 || !strings.Contains(read.Parts[last].Text, `Two {"a":1}.`) || read.Parts[last].Role != "assistant" {
					t.Fatalf("after %q: got %+v", c.said[:cut], read.Parts)
				}
			}
		})
	}
}
