package gemini_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/gemini"
	"github.com/tallylog/tally/internal/testkit/transcripts"
)

// history draws the lines of a session: messages, newer versions, rewinds, lists that are set, resumes.
func history(t *rapid.T) []string {
	var lines []string
	ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"})
	message := func() string {
		id, text := ids.Draw(t, "id"), rapid.SampledFrom([]string{"1", "2", ""}).Draw(t, "text")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return said(id, "say "+text)
		case 1:
			return answer(id, text, toolCall)
		case 2:
			return fmt.Sprintf(`{"id":%q,"timestamp":"2026-01-02T03:04:07.006Z","type":"gemini","content":[{"text":%q},{"functionCall":{"id":"t"}}]}`, id, text)
		}
		return answer(id, text, "")
	}
	for range rapid.IntRange(1, 20).Draw(t, "lines") {
		switch rapid.IntRange(0, 7).Draw(t, "line") {
		case 0:
			lines = append(lines, fmt.Sprintf(`{"$rewindTo":%q}`, ids.Draw(t, "to")))
		case 1:
			var list []string
			for range rapid.IntRange(0, 5).Draw(t, "messages") {
				list = append(list, message())
			}
			lines = append(lines, `{"$set":{"messages":[`+strings.Join(list, ",")+`]}}`)
		case 2:
			lines = append(lines, `{"$set":{"lastUpdated":"2026-01-02T03:04:07.006Z"}}`)
		case 3:
			lines = append(lines, strings.TrimSpace(head))
		default:
			lines = append(lines, message())
		}
	}
	return append(lines, said("last", "so")) // it applies the held list
}

// After any lines, the turns in effect are the messages that Gemini CLI would read from the file, in the same order
// and with the same content. No event is without effect.
func TestListLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lines := history(rt)
		l := storeLines(rt, lines...)
		var got []string
		for _, turn := range l.Live(sessionID, agents.Main) {
			got = append(got, messageIn(t, turn.Raw))
		}
		want := read(t, []byte(head+strings.Join(lines, "\n")+"\n"))
		if !slices.Equal(got, want) {
			rt.Fatalf("messages in effect are\n%s\nwant\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(lines, "\n"))
		}
		if v := l.Session(sessionID).Ledger.Rejected; len(v) > 0 {
			rt.Fatalf("got events without effect: %+v", v)
		}
	})
}

// For any lines, nothing panics, equal lines have equal results, facts can be stored, their keys differ, and every
// line is in a thread.
func FuzzLine(f *testing.F) {
	for _, lines := range []string{
		head + said("a", "1") + "\n" + answer("b", "", "") + "\n" + answer("b", "", toolCall) + "\n" + `{"$rewindTo":"a"}` + "\n",
		head + `{"$set":{"messages":[{"id":"a"},{"id":"a"},7,{"id":""}],"summary":"so","directories":["/x"]}}` + "\n",
		head + head + `{"$set":{"messages":[` + said("a", "1") + `]}}` + "\n" + said("b", "2") + "\n",
		`{"sessionId":"s","projectHash":"h","messages":[` + said("a", "1") + `,` + said("b", "2") + `]}` + "\n" + said("a", "3") + "\n",
		"", "\n\n", "\x00\n{}\n[]\n7\n", `{"id":"` + strings.Repeat("i", 600) + `","type":"user","content":{"text":"x"},"timestamp":"9999-12-31T23:59:59-23:59"}`,
		`{"id":"a","type":"gemini","model":"","tokens":{"input":9007199254740993,"output":-1,"thoughts":3}}` + "\n",
		"{\n  \"sessionId\": \"s\",\n  \"messages\": [" + said("a", "1") + "]\n}\n", "}\n}\n",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, name := range []string{file, file[:len(file)-1], "p/chats/s/x.jsonl"} {
			first, second := transcripts.New(t, gemini.Agent{}), transcripts.New(t, gemini.Agent{})
			for _, l := range []*transcripts.Log{first, second} {
				l.Append(name, content)
				l.Quiet()
			}
			if a, b := string(mustJSON(t, first.Records)), string(mustJSON(t, second.Records)); a != b {
				t.Fatalf("equal lines have two results:\n%s\nand\n%s", a, b)
			}
			for _, m := range first.Lines {
				if m.Thread != agents.Main && m.Thread != agents.Log && m.Thread != "agent/x" {
					t.Fatalf("got a line in the thread %q", m.Thread)
				}
			}
		}
	})
}
