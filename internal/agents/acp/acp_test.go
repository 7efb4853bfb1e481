package acp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/acp"
	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/transcripts"
)

const file = "c1.acp.jsonl"

// wire is a connection that is recorded.
type wire struct {
	bytes.Buffer
	ids int
}

func (w *wire) line(toAgent bool, format string, args ...any) {
	w.Write(acp.Record(toAgent, fmt.Appendf(nil, format, args...)))
	w.WriteByte('\n')
}

func (w *wire) ask(method, params string) int {
	w.ids++
	w.line(true, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, w.ids, method, params)
	return w.ids
}

func (w *wire) answer(id int, result string) {
	w.line(false, `{"jsonrpc":"2.0","id":%d,"result":%s}`, id, result)
}

func (w *wire) update(session, update string) {
	w.line(false, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`, session, update)
}

func (w *wire) chunk(session, kind, text string) {
	w.update(session, fmt.Sprintf(`{"sessionUpdate":"agent_%s_chunk","content":{"type":"text","text":%q}}`, kind, text))
}

// open introduces an agent and opens sessions.
func (w *wire) open(sessions ...string) {
	w.answer(w.ask("initialize", `{"protocolVersion":1}`), `{"protocolVersion":1,"agentInfo":{"name":"gull","version":"7"}}`)
	for _, s := range sessions {
		w.answer(w.ask("session/new", `{"cwd":"/home/ada/pier","mcpServers":[]}`), fmt.Sprintf(`{"sessionId":%q}`, s))
	}
}

func (w *wire) prompt(session, text string) int {
	return w.ask("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text))
}

func storeLines(t transcripts.T, w *wire) *transcripts.Log {
	l := transcripts.New(t, acp.Agent{})
	l.Append(file, w.Bytes())
	return l
}

// screen returns the text of main of a session.
func screen(t transcripts.T, l *transcripts.Log, session string) string {
	var list []string
	for _, turn := range l.Live(session, agents.Main) {
		read, ok := message.Read(turn.Raw)
		if !ok {
			t.Fatalf("%s is not a turn", turn.Raw)
		}
		for _, p := range read.Parts {
			list = append(list, strings.TrimRight(fmt.Sprintf("%s%s: %s%s", p.Role, []string{"", " thinks", " calls", " answers"}[min(p.Kind, 3)], p.Name, p.Text), " "))
		}
	}
	return strings.Join(list, "\n")
}

// A prompt and the updates for it become two turns, in the order of their lines.
func TestTurn(t *testing.T) {
	var w wire
	w.open("s1")
	id := w.prompt("s1", "What flies here?")
	w.chunk("s1", "thought", "It is ")
	w.chunk("s1", "thought", "white.")
	w.update("s1", `{"sessionUpdate":"tool_call","toolCallId":"t","title":"Look","kind":"read","status":"pending"}`)
	w.line(false, `{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t"}}}`, id) // the agent counts its own ids
	w.line(true, `{"jsonrpc":"2.0","id":%d,"result":{"outcome":{"outcome":"selected"}}}`, id)
	w.update("s1", `{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","rawOutput":"gulls"}`)
	w.chunk("s1", "thought", "Gulls!")
	w.chunk("s1", "message", "Gu")
	w.chunk("s1", "message", "lls.")
	w.answer(id, `{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":5,"thoughtTokens":2,"cachedReadTokens":4,"totalTokens":17}}`)
	l := storeLines(t, &w)
	want := "user: What flies here?\nassistant thinks: It is white.\nassistant calls: Look\ntool answers: Lookgulls\nassistant thinks: Gulls!\nassistant: Gulls."
	if got := screen(t, l, "acp/gull/s1"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var deltas string
	for i, p := range transcripts.Payloads[*events.RunProgressed](l) {
		deltas += string(p.Delta)
		if p.Seq != int64(i+1) || p.Turn != l.Live("acp/gull/s1", "main")[1].ID {
			t.Errorf("got %+v", p)
		}
	}
	if deltas != `"It is ""white.""Gulls!""Gu""lls."` {
		t.Errorf("deltas %s", deltas)
	}
	end := transcripts.Payloads[*events.RunFinished](l)
	if len(end) != 1 || end[0].Outcome != "completed" || len(end[0].Usage) == 0 {
		t.Errorf("got %+v", end)
	}
	cost := transcripts.Payloads[*events.CostAccrued](l)
	if len(cost) != 1 || *cost[0].Tokens != (events.Tokens{Input: 6, Output: 7, Reasoning: 2, CacheRead: 4}) || *cost[0].Run != end[0].Run {
		t.Errorf("got %+v", cost)
	}
	s := l.Session("acp/gull/s1").Ledger
	if s.Text("cwd") != "/home/ada/pier" || s.Text("project") != "pier" {
		t.Errorf("cwd %q, project %q", s.Text("cwd"), s.Text("project"))
	}
}

// The outcome of a turn is the agent's stop reason.
func TestOutcomes(t *testing.T) {
	for result, want := range map[string]string{
		`"result":{"stopReason":"end_turn"}`: "completed", `"result":{"stopReason":"max_tokens"}`: "completed", `"result":{"stopReason":"cancelled"}`: "interrupted",
		`"result":{"stopReason":"refusal"}`: "stopped:refusal", `"error":{"code":-32000,"message":"no"}`: "failed",
	} {
		var w wire
		w.open("s1")
		id := w.prompt("s1", "Go")
		w.line(true, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s1"}}`)
		w.line(false, `{"jsonrpc":"2.0","id":%d,%s}`, id, result)
		if got := transcripts.Payloads[*events.RunFinished](storeLines(t, &w)); len(got) != 1 || got[0].Outcome != want {
			t.Errorf("%s: got %+v, want %s", result, got, want)
		}
	}
}

// An agent reports the cost of a session so far; the increase counts.
func TestPaid(t *testing.T) {
	var w wire
	w.open("s1")
	for _, usd := range []string{"0.01", "0.01", "0.035"} {
		w.update("s1", `{"sessionUpdate":"usage_update","used":5,"size":9,"cost":{"amount":`+usd+`,"currency":"USD"}}`)
	}
	w.update("s1", `{"sessionUpdate":"usage_update","used":5,"size":9,"cost":{"amount":9,"currency":"EUR"}}`)
	var got []string
	for _, p := range transcripts.Payloads[*events.CostAccrued](storeLines(t, &w)) {
		got = append(got, string(p.USD))
	}
	if !slices.Equal(got, []string{"0.01", "0.025"}) {
		t.Errorf("paid %q", got)
	}
}

// Sessions share a connection, with their lines in any order: each has its own messages, and the deltas equal the
// turns.
func TestInterleavedLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var w wire
		sessions := []string{"s1", "s2", "s3"}
		w.open(sessions...)
		want, open, answers := make(map[string]string), make(map[string]int), make(map[string]string)
		finish := func(s string) {
			w.answer(open[s], `{"stopReason":"end_turn"}`)
			if answers[s] != "" {
				want[s] += "assistant: " + answers[s] + "\n"
			}
			delete(open, s)
			delete(answers, s)
		}
		for i := range rapid.IntRange(1, 30).Draw(rt, "lines") {
			s := rapid.SampledFrom(sessions).Draw(rt, "session")
			switch {
			case open[s] == 0:
				text := fmt.Sprint("prompt ", i)
				open[s] = w.prompt(s, text)
				want[s] += "user: " + text + "\n"
			case rapid.IntRange(0, 3).Draw(rt, "end") == 0:
				finish(s)
			default:
				w.chunk(s, "message", fmt.Sprint(i, ";"))
				answers[s] += fmt.Sprint(i, ";")
			}
		}
		for _, s := range slices.Sorted(maps.Keys(open)) {
			finish(s)
		}
		l := storeLines(rt, &w)
		for _, s := range sessions {
			if got := screen(rt, l, "acp/gull/"+s); got != strings.TrimSuffix(want[s], "\n") {
				rt.Fatalf("screen of session %s:\n%s\nwant\n%s", s, got, want[s])
			}
		}
		if created := transcripts.Payloads[*events.SessionCreated](l); len(created) != 1+len(sessions) {
			rt.Fatalf("got %d sessions created", len(created))
		}
	})
}

// The recorded connection reads like the screen, in both forms of recorded lines.
func TestRecorded(t *testing.T) {
	content, err := os.ReadFile(testkit.Data(t, "agents", "acp-gemini-0.61.log"))
	if err != nil {
		t.Fatal(err)
	}
	const session = "acp/gemini-cli/fad754a3-b2b0-46c0-9d34-bd81178793e8"
	var w wire
	for line := range bytes.Lines(content) {
		w.line(line[0] == '>', "%s", bytes.TrimSpace(line[2:]))
	}
	l := storeLines(t, &w)
	want := "user: what is here\nassistant calls: search .\nassistant: Hello number 2 from a model that needs no network."
	if got := screen(t, l, session); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	plain := transcripts.New(t, acp.Agent{})
	plain.Append(file, content)
	for name, l := range map[string]*transcripts.Log{"recorded": l, "with arrows": plain} {
		cost := transcripts.Payloads[*events.CostAccrued](l)
		if len(cost) != 1 || *cost[0].Tokens != (events.Tokens{Input: 1800, Output: 40}) || cost[0].Model != "gemini-2.5-flash" {
			t.Errorf("%s: got %+v", name, cost)
		}
		if n := len(l.Lines); n != 10 {
			t.Errorf("%s: got %d lines", name, n)
		}
	}
}

// A recorded line is valid JSON that contains the sent line: as JSON, else as text, else in base64.
func TestRecord(t *testing.T) {
	for line, want := range map[string]string{
		`{"a":1}`: `{"toAgent":true,"message":{"a":1}}`, "hello": `{"toAgent":true,"text":"hello"}`, "\xff": `{"toAgent":true,"bytes":"/w=="}`, "": `{"toAgent":true,"text":""}`,
	} {
		if got := string(acp.Record(true, []byte(line))); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q is recorded as %s, want %s", line, got, want)
		}
	}
}

// For any lines, nothing panics, equal lines have equal results, facts can be stored, and their keys differ.
func FuzzLine(f *testing.F) {
	var w wire
	w.open("s1", "s2")
	id := w.prompt("s1", "x")
	w.chunk("s1", "message", "y")
	w.update("s1", `{"sessionUpdate":"tool_call","toolCallId":"t","title":"a"}`)
	w.update("s1", `{"sessionUpdate":"tool_call_update","toolCallId":"t","title":null,"rawOutput":[1]}`)
	w.answer(id, `{"stopReason":"a b","_meta":{"quota":{"model_usage":[{"model":"m","token_count":{"input_tokens":1}},7,{"token_count":{"output_tokens":2}}]}}}`)
	f.Add(w.Bytes())
	for _, lines := range []string{
		"", "\n\n", "\x00\n{}\n[]\n7\n> {}\n< 7\n", `{"toAgent":true,"message":{"method":"session/prompt","params":{"sessionId":"` + strings.Repeat("s", 600) + `"}}}`,
		`> {"id":1,"method":"session/new"}` + "\n" + `< {"id":1,"result":{"sessionId":"a/b"}}` + "\n", `> {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}` + "\n" + `< {"id":1,"error":null}` + "\n",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var results [2]string
		for i := range results {
			l := transcripts.New(t, acp.Agent{})
			l.Append(file, content)
			l.Quiet()
			raw, err := json.Marshal(l.Records)
			if err != nil {
				t.Fatal(err)
			}
			results[i] = string(raw)
			for _, m := range l.Lines {
				if m.Thread != agents.Main && m.Thread != agents.Log {
					t.Fatalf("got a line in the thread %q", m.Thread)
				}
			}
		}
		if results[0] != results[1] {
			t.Fatalf("equal lines have two results:\n%s\nand\n%s", results[0], results[1])
		}
	})
}
