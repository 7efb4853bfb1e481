package stream_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/agents/stream"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/transcripts"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// recorded returns the output of a command as it is recorded, and the name of the file.
func recorded(format, session, printed string, e stream.Ending, command ...string) (name string, content []byte) {
	content = append(stream.Begin(command, "/home/ada/pier", noon), '\n')
	content = append(content, printed...)
	return stream.FileName(format, "20260102-1", session, command), append(append(content, stream.End(e, noon.Add(time.Minute))...), '\n')
}

func storeLines(t transcripts.T, name string, content []byte) *transcripts.Log {
	l := transcripts.New(t, stream.Agent{})
	l.Append(name, content)
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
			list = append(list, strings.TrimRight(fmt.Sprintf("%s%s: %s", p.Role, []string{"", " thinks", " calls", " answers"}[min(p.Kind, 3)], strings.TrimSpace(p.Text)), " "))
		}
	}
	return strings.Join(list, "\n")
}

// Output of the real programs reads like their screens, and has their costs.
func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		data, format, session string
		command               []string
		want                  string
		tokens                events.Tokens
		model                 string
		outcome               string
	}{
		{"codex-exec.jsonl", "codex", "01a20208-8e81-7be2-b833-33decd4d9d8d", []string{"codex", "exec", "--json", "-m", "fake-model", "say two"},
			"error: Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n" +
				"assistant calls: /bin/bash -lc 'echo tally-1'\ntool answers: tally-1\nassistant: The answer is number 2.",
			events.Tokens{Input: 2600, Output: 80, Reasoning: 16, CacheRead: 1000}, "fake-model", "completed"},
		{"codex-0.118-exec.jsonl", "codex", "01a20209-5cec-7163-aead-ef291b026de5", []string{"codex", "exec", "--json", "say two"},
			"assistant calls: /bin/bash -lc 'echo tally-1'\ntool answers: tally-1\nassistant: The answer is number 2.",
			events.Tokens{Input: 2600, Output: 80, CacheRead: 1000}, "unknown", "completed"},
		{"gemini-0.61-stream.jsonl", "gemini", "c57e0669-1ad0-4271-a7d8-64dc15e0b41a", []string{"gemini", "-o", "stream-json", "what is here"},
			"user: what is here\nassistant calls: {\"dir_path\":\".\"}\ntool answers:\nassistant: Hello number 2 from a model that needs no network.",
			events.Tokens{Input: 1600, Output: 54, Reasoning: 14, CacheRead: 200}, "fake", "completed"},
		{"pi-0.73-json.jsonl", "pi", "01a2020d-6a73-7432-90a0-615abc5a78f7", []string{"pi", "--mode", "json", "hello there"},
			"user: hello there\nassistant: The answer is number 2.",
			events.Tokens{Input: 160, Output: 12, CacheRead: 40}, "fake-model", "completed"},
	} {
		t.Run(c.data, func(t *testing.T) {
			printed, err := os.ReadFile(testkit.Data(t, "agents", c.data))
			if err != nil {
				t.Fatal(err)
			}
			if got := stream.FormatOf(c.command); got != c.format {
				t.Errorf("the format of %q is %s", c.command, got)
			}
			first, _, _ := bytes.Cut(printed, []byte("\n"))
			if got := stream.SessionIn(c.format, first); got != c.session {
				t.Errorf("the session is %q", got)
			}
			name, content := recorded(c.format, c.session, string(printed), stream.Ending{}, c.command...)
			l := storeLines(t, name, content)
			id := "exec/" + c.format + "/" + c.session
			if got, want := screen(t, l, id), "command: "+strings.Join(c.command, " ")+"\n"+c.want; got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			cost := transcripts.Payloads[*events.CostAccrued](l)
			if len(cost) != 1 || *cost[0].Tokens != c.tokens || cost[0].Model != c.model {
				t.Errorf("the cost is %+v", cost)
			}
			end := transcripts.Payloads[*events.RunFinished](l)
			if len(end) != 1 || end[0].Outcome != c.outcome || cost[0].Run == nil || *cost[0].Run != end[0].Run {
				t.Errorf("the turn's end is %+v", end)
			}
			s := l.Session(id).Ledger
			if s.Text("cwd") != "/home/ada/pier" || s.Text("project") != "pier" {
				t.Errorf("cwd %q, project %q", s.Text("cwd"), s.Text("project"))
			}
			if n := len(l.Lines); n != bytes.Count(printed, []byte("\n"))+2 {
				t.Errorf("got %d lines", n)
			}
		})
	}
}

// Codex prints the usage of a thread so far. Of the sums of several runs, one counts.
func TestResumed(t *testing.T) {
	l := transcripts.New(t, stream.Agent{})
	for i, out := range []int{80, 100, 100} {
		printed := fmt.Sprintf(`{"type":"thread.started","thread_id":"t1"}`+"\n"+`{"type":"turn.started"}`+"\n"+`{"type":"turn.completed","usage":{"input_tokens":%d,"output_tokens":%d}}`+"\n", 10*out, out)
		_, content := recorded("codex", "t1", printed, stream.Ending{}, "codex")
		l.Append(stream.FileName("codex", fmt.Sprint(i), "t1", nil), content)
	}
	spent := l.Session("exec/codex/t1").Ledger.Spent()
	if spent.Tokens.Input != 1000 || spent.Tokens.Output != 100 {
		t.Errorf("the session spent %+v", spent)
	}
}

const claudeInit = `{"type":"system","subtype":"init","cwd":"/srv","session_id":"s1","model":"m","uuid":"u0"}` + "\n"

func claudeSays(uuid, id, parent, text string, out int) string {
	return fmt.Sprintf(`{"type":"assistant","uuid":%q,"session_id":"s1","parent_tool_use_id":%s,"message":{"id":%q,"role":"assistant","model":"m","content":[{"type":"text","text":%q}],"usage":{"input_tokens":3,"output_tokens":%d}}}`+"\n", uuid, parent, id, text, out)
}

// A response in several lines costs once. A sub-agent has its own thread. The total in dollars at the end is kept and
// not added.
func TestClaude(t *testing.T) {
	printed := claudeInit + claudeSays("u1", "m1", "null", "Look", 1) + claudeSays("u2", "m1", "null", "ing", 7) + claudeSays("u3", "m2", `"toolu_1"`, "Inside", 2) +
		`{"type":"user","session_id":"s1","uuid":"u4","parent_tool_use_id":null,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"two"}]}}` + "\n" +
		`{"type":"result","subtype":"success","is_error":false,"result":"x","session_id":"s1","total_cost_usd":0.5,"usage":{"input_tokens":6}}` + "\n"
	name, content := recorded("claude", "s1", printed, stream.Ending{}, "claude", "-p")
	l := storeLines(t, name, content)
	if got, want := screen(t, l, "exec/claude/s1"), "command: claude -p\nassistant: Look\nassistant: ing\nuser answers: two"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := l.Live("exec/claude/s1", "agent/toolu_1"); len(got) != 1 || got[0].ID != "u3" {
		t.Errorf("the sub-agent's thread has %+v", got)
	}
	if spent := l.Session("exec/claude/s1").Ledger.Spent(); spent.Tokens.Input != 6 || spent.Tokens.Output != 9 {
		t.Errorf("the session spent %+v", spent)
	}
	end := transcripts.Payloads[*events.RunFinished](l)
	if len(end) != 1 || end[0].Outcome != "completed" || !bytes.Contains(end[0].Usage, []byte(`"total_cost_usd":0.5`)) {
		t.Errorf("the turn's end is %+v", end)
	}
	if p := transcripts.Payloads[*events.SessionCreated](l); p[0].Title != "claude -p" {
		t.Errorf("the title is %q", p[0].Title)
	}
}

// The outcome of a run is the one that the program prints, else it follows from how the program ended.
func TestOutcomes(t *testing.T) {
	begin := map[string]string{
		"codex": `{"type":"turn.started"}` + "\n", "claude": claudeInit, "pi": `{"type":"agent_start"}` + "\n",
		"gemini": `{"type":"message","timestamp":"2026-01-02T03:04:05Z","role":"user","content":"x"}` + "\n",
	}
	for _, c := range []struct {
		format, line string
		e            stream.Ending
		want         string
	}{
		{"codex", `{"type":"turn.failed","error":{"message":"no"}}`, stream.Ending{Exit: 1}, "failed"},
		{"codex", ``, stream.Ending{Exit: 1}, "failed"},
		{"codex", ``, stream.Ending{}, "stopped:unfinished"},
		{"codex", ``, stream.Ending{Exit: 143, Signal: "terminated"}, "interrupted"},
		{"codex", ``, stream.Ending{Cut: true}, "stopped:unrecorded"},
		{"gemini", `{"type":"result","timestamp":"2026-01-02T03:04:05Z","status":"error","error":{"message":"no"}}`, stream.Ending{Exit: 1}, "failed"},
		{"claude", `{"type":"result","subtype":"error_max_turns","is_error":true,"session_id":"s1"}`, stream.Ending{Exit: 1}, "stopped:error_max_turns"},
		{"claude", `{"type":"result","subtype":"success","is_error":true,"session_id":"s1","result":"no"}`, stream.Ending{Exit: 1}, "failed"},
		{"pi", `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"aborted"}}` + "\n" + `{"type":"agent_end","messages":[]}`, stream.Ending{}, "interrupted"},
		{"lines", `two`, stream.Ending{}, "completed"},
		{"lines", `two`, stream.Ending{Exit: 3}, "failed"},
	} {
		name, content := recorded(c.format, "s1", begin[c.format]+c.line+"\n", c.e, "true")
		end := transcripts.Payloads[*events.RunFinished](storeLines(t, name, content))
		if len(end) != 1 || end[0].Outcome != c.want {
			t.Errorf("%s, %s, %+v: %+v, want %s", c.format, c.line, c.e, end, c.want)
		}
	}
}

// If the program never prints the whole text, the pieces become one turn, however the text is split. Text that was
// reported before is the beginning of that turn.
func TestPiecesLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var printed strings.Builder
		printed.WriteString(`{"type":"message","timestamp":"2026-01-02T03:04:05Z","role":"user","content":"x"}` + "\n")
		want := []string{"command: gemini", "user: x"}
		var texts []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "texts") {
			text := fmt.Sprintf("%d %s.", i, strings.Repeat("gull ", rapid.IntRange(1, 3000).Draw(rt, "length")))
			want = append(want, "assistant: "+text, "assistant calls: {}")
			texts = append(texts, text)
			for text != "" {
				n := rapid.IntRange(1, min(len(text), 2000)).Draw(rt, "piece")
				fmt.Fprintf(&printed, `{"type":"message","timestamp":"2026-01-02T03:04:06Z","role":"assistant","content":%q,"delta":true}`+"\n", text[:n])
				text = text[n:]
			}
			fmt.Fprintf(&printed, `{"type":"tool_use","timestamp":"2026-01-02T03:04:07Z","tool_name":"look","tool_id":"%d","parameters":{}}`+"\n", i)
		}
		name, content := recorded("gemini", "s1", printed.String(), stream.Ending{}, "gemini")
		l := storeLines(rt, name, content)
		if got := screen(rt, l, "exec/gemini/s1"); got != strings.Join(want, "\n") {
			rt.Fatalf("the screen is\n%.2000s", got)
		}
		received := make(map[string]string)
		for _, p := range transcripts.Payloads[*events.RunProgressed](l) {
			var delta string
			if err := json.Unmarshal(p.Delta, &delta); err != nil || len(delta) < 4096 {
				rt.Fatalf("got a delta of %d bytes", len(delta))
			}
			received[p.Turn] += delta
		}
		for i, text := range texts {
			id := fmt.Sprintf("20260102-1_s1/said/%d", i+1)
			if !strings.HasPrefix(text, received[id]) || len(text)-len(received[id]) >= 4096+2000 {
				rt.Fatalf("got %[3]d of the %[1]d bytes of %[2]s", len(text), id, len(received[id]))
			}
		}
	})
}

// A command's arguments determine the format of its output, and the first lines in that format the session.
func TestFormats(t *testing.T) {
	for command, want := range map[string]string{
		"codex exec --json x": "codex", "/usr/bin/codex -m x exec --json x": "codex", "codex exec x": "lines", "codex --json": "lines",
		"gemini -o stream-json x": "gemini", "gemini --output-format=stream-json": "gemini", "gemini -o json": "lines", "gemini --acp": "lines",
		"claude -p --output-format stream-json --verbose x": "claude", "claude -p x": "lines", `C:\bin\claude.exe --output-format stream-json`: "claude",
		"pi --mode json x": "pi", "pi --mode rpc": "lines", "make test": "lines", "sh -c codex": "lines",
	} {
		if got := stream.FormatOf(strings.Fields(command)); got != want {
			t.Errorf("the format of %s is %s, want %s", command, got, want)
		}
	}
	for _, c := range []struct{ format, line, want string }{
		{"codex", `{"type":"thread.started","thread_id":"t1"}`, "t1"}, {"codex", `{"type":"turn.started"}`, ""}, {"codex", `{"thread_id":"../x"}`, ""},
		{"codex", `not JSON`, ""}, {"pi", `{"type":"session","id":"p1"}`, "p1"}, {"lines", `{"id":"p1"}`, ""}, {"unknown", `{}`, ""},
	} {
		if got := stream.SessionIn(c.format, []byte(c.line)); got != c.want {
			t.Errorf("%s: the session of %s is %q, want %q", c.format, c.line, got, c.want)
		}
	}
}

// The name of a recorded file determines its session and stem. Other names are not recordings.
func TestFiles(t *testing.T) {
	a := stream.Agent{}
	for name, want := range map[string]string{
		"20260102-1_t1.codex.jsonl":     "exec/codex/t1 20260102-1_t1",
		"x/20260102-1_a_b.claude.jsonl": "exec/claude/a_b 20260102-1_a_b",
		"20260102-1.gemini.jsonl":       "exec/gemini/20260102-1 20260102-1",
		"20260102-1_make.lines":         "exec/make/20260102-1 20260102-1_make",
		"20260102-1.lines":              "exec/command/20260102-1 20260102-1",
		"c1.acp.jsonl":                  "", "t1.lines.jsonl": "", "t1.jsonl": "", ".codex.jsonl": "", "a b.codex.jsonl": "", "t1.codex.jsonl.tmp": "",
	} {
		f, ok := a.File(name, nil)
		got := ""
		if ok {
			got = f.Session + " " + f.Stem
		}
		if got != want || a.Wants(name) != ok {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, format := range stream.Formats() {
		for _, session := range []string{"", "s1"} {
			name := stream.FileName(format, "1-a", session, []string{"/bin/ma ke"})
			if f, ok := a.File(name, nil); !ok || format != "lines" && session != "" && f.Session != "exec/"+format+"/s1" {
				t.Errorf("%s is %+v", name, f)
			}
		}
	}
}

// The frame of any command is valid JSON, and IsEnd distinguishes end from begin.
func TestFrames(t *testing.T) {
	begin := stream.Begin([]string{"\xff", "a\nb", ""}, "/\xff", noon)
	if !json.Valid(begin) || bytes.ContainsAny(begin, "\n") || stream.IsEnd(begin) {
		t.Errorf("got %q", begin)
	}
	for _, e := range []stream.Ending{{}, {Exit: 3, Torn: true}, {Exit: 143, Signal: "terminated", Lost: true}, {Cut: true}} {
		if end := stream.End(e, noon); !stream.IsEnd(end) || !json.Valid(end) {
			t.Errorf("got %s", end)
		}
	}
}

// For any lines, nothing panics, equal lines have equal results, facts can be stored, and their keys differ.
func FuzzLine(f *testing.F) {
	begin := string(stream.Begin([]string{"codex", "-m"}, "/srv", noon)) + "\n"
	end := string(stream.End(stream.Ending{}, noon)) + "\n"
	for _, lines := range []string{
		"", "\n\n", "\x00\n{}\n[]\n7\n", begin + end + end + begin, claudeInit + claudeSays("u1", "m1", "null", "x", 1) + `{"type":"result","subtype":"a b"}` + "\n",
		`{"type":"turn.started"}` + "\n" + `{"type":"turn.started"}` + "\n" + `{"type":"turn.completed","usage":{"input_tokens":9007199254740993}}` + "\n",
		`{"type":"message","role":"assistant","delta":true,"content":"\ud800","timestamp":{"a":1}}` + "\n" + `{"type":"result","status":7,"stats":{"models":{"a":7,"b":{"cached":9,"total_tokens":1}}}}` + "\n",
		`{"type":"agent_start"}` + "\n" + `{"type":"message_end","message":{"role":"assistant","usage":{"input":1,"cost":{"total":1e99}}}}` + "\n" + `{"type":"agent_end"}` + "\n",
		`{"type":"tally.exec","command":[7],"cwd":"x"}` + "\n" + `{"type":"tally.exec","exit":"x","timestamp":"0000-01-01T00:00:00Z"}` + "\n",
		`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"` + strings.Repeat("x", 5000) + `"}}}` + "\n",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, format := range stream.Formats() {
			var results [2]string
			for i := range results {
				l := transcripts.New(t, stream.Agent{})
				l.Append(stream.FileName(format, "1", "s1", nil), content)
				l.Quiet()
				raw, err := json.Marshal(l.Records)
				if err != nil {
					t.Fatal(err)
				}
				results[i] = string(raw)
				if n := bytes.Count(content, []byte("\n")); len(l.Lines) < n {
					t.Fatalf("got %d lines of %d", len(l.Lines), n)
				}
				if i := slices.IndexFunc(l.Lines, func(m agents.Meaning) bool { return m.Session != "" }); i >= 0 {
					t.Fatalf("got line %d in another session", i)
				}
			}
			if results[0] != results[1] {
				t.Fatalf("equal lines have two results:\n%s\nand\n%s", results[0], results[1])
			}
		}
	})
}

// If pi's id of an answer is not unique, the id includes a hash of the content: different answers differ, and copies
// are equal. A unique id stays.
func TestPiResponses(t *testing.T) {
	const unique = "msg_01XFDUDYJgAACzvnptvVoYEL"
	responses := func(answers ...[2]string) (ids []string) {
		printed := `{"type":"session","version":3,"id":"p1","timestamp":"2026-01-02T03:04:05Z","cwd":"/srv"}` + "\n"
		for _, a := range answers {
			printed += fmt.Sprintf(`{"type":"message_end","message":{"role":"assistant","model":"m","responseId":%q,"content":[{"type":"text","text":%q}],"usage":{"input":3,"output":2},"stopReason":"stop"}}`+"\n", a[0], a[1])
		}
		name, content := recorded("pi", "p1", printed, stream.Ending{}, "pi", "--mode", "json", "x")
		for _, c := range transcripts.Payloads[*events.CostAccrued](storeLines(t, name, content)) {
			ids = append(ids, c.Response)
		}
		return ids
	}
	t.Run("B-11 answers of pi with one weak id", func(t *testing.T) {
		ids := responses([2]string{"chatcmpl-7", "one"}, [2]string{"chatcmpl-7", "two"})
		if len(ids) != 2 || ids[0] == ids[1] || !events.IsUnique(ids[0]) || !events.IsUnique(ids[1]) {
			t.Fatalf("got %q", ids)
		}
		if again := responses([2]string{"chatcmpl-7", "one"}); !slices.Equal(again, ids[:1]) {
			t.Errorf("the second result is %q, want %q", again, ids[:1])
		}
		if ids := responses([2]string{unique, "one"}); !slices.Equal(ids, []string{unique}) {
			t.Errorf("got %q, want %s", ids, unique)
		}
	})
}
