package gemini_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/gemini"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/transcripts"
)

const (
	file      = "pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl"
	sessionID = "gemini/5a5a5a5a-0000-4000-8000-000000000000"
	head      = `{"sessionId":"5a5a5a5a-0000-4000-8000-000000000000","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z","lastUpdated":"2026-01-02T03:04:05.006Z","kind":"main"}` + "\n"
)

// said returns a message of the user, answer one of the model with its tokens.
func said(id, text string) string {
	return fmt.Sprintf(`{"id":%q,"timestamp":"2026-01-02T03:04:05.006Z","type":"user","content":[{"text":%q}]}`, id, text)
}

func answer(id, text, more string) string {
	return fmt.Sprintf(`{"id":%q,"timestamp":"2026-01-02T03:04:06.006Z","type":"gemini","content":%q,"tokens":{"input":90,"output":5,"cached":20,"thoughts":3,"tool":1,"total":99},"model":"m"%s}`, id, text, more)
}

// storeLines stores lines after the first one.
func storeLines(t transcripts.T, lines ...string) *transcripts.Log {
	l := transcripts.New(t, gemini.Agent{})
	l.Append(file, []byte(head))
	for _, line := range lines {
		l.Append(file, []byte(line+"\n"))
	}
	return l
}

// live returns the ids of the messages in effect, with their versions.
func live(l *transcripts.Log, thread string) string {
	var list []string
	for _, turn := range l.Live(sessionID, thread) {
		var m struct {
			ID        string
			ToolCalls []any
		}
		if json.Unmarshal(turn.Raw, &m) != nil {
			continue
		}
		if m.ToolCalls != nil {
			m.ID += "+"
		}
		list = append(list, m.ID)
	}
	return strings.Join(list, " ")
}

const toolCall = `,"toolCalls":[{"id":"t","name":"ls","args":{},"result":[],"status":"success"}]`

// Each line changes the conversation by the expected events.
func TestLines(t *testing.T) {
	set := func(messages ...string) string { return `{"$set":{"messages":[` + strings.Join(messages, ",") + `]}}` }
	for name, c := range map[string]struct {
		lines []string
		want  string
		moves string // events that change the thread
	}{
		"messages":                      {[]string{said("a", "1"), `{"$set":{"lastUpdated":"2026-01-02T03:04:05.006Z"}}`, answer("b", "2", "")}, "a b", ""},
		"newer version":                 {[]string{said("a", "1"), answer("b", "", ""), answer("b", "", toolCall)}, "a b+", "replaced[0,1]"},
		"newer version of an older":     {[]string{said("a", "1"), answer("b", "", ""), said("c", "2"), answer("b", "", toolCall)}, "a b+ c", "replaced[0,1][3,4][2,3]"},
		"written twice":                 {[]string{said("a", "1"), said("a", "1")}, "a", ""},
		"rewind":                        {[]string{said("a", "1"), answer("b", "2", ""), said("c", "3"), `{"$rewindTo":"b"}`, said("d", "4")}, "a d", "rewound"},
		"rewind to nobody knows":        {[]string{said("a", "1"), `{"$rewindTo":"x"}`, said("d", "4")}, "d", "rewound"},
		"rewind of a version":           {[]string{said("a", "1"), answer("b", "", ""), answer("b", "", toolCall), said("c", "3"), `{"$rewindTo":"c"}`}, "a b+", "replaced[0,1] rewound"},
		"rewind to behind an order":     {[]string{said("a", "1"), answer("b", "", ""), said("c", "2"), answer("b", "", toolCall), `{"$rewindTo":"c"}`}, "a b+", "replaced[0,1][3,4][2,3] replaced[0,2]"},
		"list that is the same":         {[]string{said("a", "1"), answer("b", "2", ""), set(said("a", "1"), `{"id":"b","timestamp":"2027-01-02T03:04:06.006Z","type":"gemini","content":[{"text":"2"}]}`)}, "a b", ""},
		"list with calls inside":        {[]string{said("a", "1"), answer("b", "", toolCall), set(said("a", "1"), `{"id":"b","type":"gemini","content":[{"functionCall":{"id":"t","name":"ls"}}]}`)}, "a b+", ""},
		"list with a call more":         {[]string{answer("b", "2", ""), set(`{"id":"b","type":"gemini","content":[{"text":"2"},{"functionCall":{"id":"t","name":"ls"}}]}`)}, "b", "replaced!b"},
		"list that is compressed":       {[]string{said("a", "1"), answer("b", "2", ""), said("c", "3"), set(said("s", "summary"), said("c", "3"))}, "s c", "replaced!s[2,3]"},
		"list with another text":        {[]string{said("a", "1"), set(said("a", "masked"))}, "a", "replaced!a"},
		"rewind behind a list":          {[]string{said("a", "1"), set(said("s", "so"), said("a", "1")), said("b", "2"), `{"$rewindTo":"a"}`}, "s", "replaced!s[0,1] replaced[0,1]"},
		"resume":                        {[]string{said("a", "1"), answer("b", "2", ""), strings.TrimSpace(head), set(said("x", "where")), `{"$set":{"sessionId":"5a5a5a5a"}}`, set(said("a", "1"), said("b2", "also")), said("c", "3")}, "a b2 c", "replaced[0,1]!b2"},
		"resume that nobody uses":       {[]string{said("a", "1"), strings.TrimSpace(head), set(said("x", "where"))}, "a", ""},
		"rewind of what follows a list": {[]string{`{"$set":{"messages":[` + said("w", "where") + `]}}`, said("a", "1"), answer("b", "2", ""), `{"$rewindTo":"a"}`}, "w", "replaced!w rewound"},
		"torn":                          {[]string{said("a", "1")[:30], "", "\x00", "[]", "{}", `{"id":7}`}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := storeLines(t, c.lines...)
			if got := live(l, "main"); got != c.want {
				t.Errorf("messages in effect are %q, want %q", got, c.want)
			}
			if got := moves(l); got != c.moves {
				t.Errorf("events that change the thread are %q, want %q", got, c.moves)
			}
			if v := l.Session(sessionID).Ledger.Rejected; len(v) > 0 {
				t.Errorf("got events without effect: %+v", v)
			}
		})
	}
}

// moves returns the events that change the thread other than by an append.
func moves(l *transcripts.Log) string {
	var list []string
	for _, rec := range l.Records {
		switch p, _ := events.Decode(rec.Type, rec.Data); p := p.(type) {
		case *events.SessionRewound:
			list = append(list, "rewound")
		case *events.ThreadReplaced:
			word := "replaced"
			for _, it := range p.Threads["main"].Items {
				if it.Keep != nil {
					word += fmt.Sprintf("[%d,%d]", it.Keep[0], it.Keep[1])
				} else {
					word += "!" + it.ID
				}
			}
			list = append(list, word)
		}
	}
	return strings.Join(list, " ")
}

// A second file with the same id adds its messages after those of the first, and changes only its own.
func TestSecondFile(t *testing.T) {
	l := storeLines(t, said("a", "1"), answer("b", "2", ""))
	second := strings.Replace(file, "03-04", "04-04", 1)
	l.Append(second, []byte(head+said("c", "3")+"\n"+answer("d", "", "")+"\n"+answer("d", "", toolCall)+"\n"+`{"$set":{"messages":[`+said("e", "all")+`]}}`+"\n"))
	if got := live(l, "main"); got != "a b e" {
		t.Errorf("messages in effect are %q", got)
	}
}

// A sub-agent's messages are in their own thread, and its rewinds affect no other thread.
func TestSubAgent(t *testing.T) {
	l := storeLines(t, said("a", "1"))
	sub := "pier/chats/" + strings.TrimPrefix(sessionID, "gemini/") + "/sub-1.jsonl"
	l.Append(sub, []byte(strings.Replace(head, "5a5a5a5a-0000-4000-8000-000000000000", "sub-1", 1)+said("x", "look")+"\n"+answer("y", "so", "")+"\n"+`{"$rewindTo":"y"}`+"\n"+answer("z", "thus", "")+"\n"))
	if got := live(l, "main") + "|" + live(l, "agent/sub-1"); got != "a|x z" {
		t.Errorf("messages in effect are %q", got)
	}
	if n := len(transcripts.Payloads[*events.RunCreated](l)); n != 1 {
		t.Errorf("got %d turns, want only the user's", n)
	}
	if n := len(transcripts.Payloads[*events.CostAccrued](l)); n != 2 {
		t.Errorf("got %d costs, want those of the sub-agent", n)
	}
}

// Turns begin with the user's prompts, and end as the model left them.
func TestRuns(t *testing.T) {
	for want, lines := range map[string][]string{
		"a: stopped:unfinished b": {said("a", "1"), answer("x", "", toolCall), said("b", "2")},
		"a: completed b":          {said("a", "1"), answer("x", "so", ""), said("b", "2")},
		"a: failed b":             {said("a", "1"), `{"id":"e","type":"error","content":"no"}`, said("b", "2")},
		"a: interrupted b":        {said("a", "1"), `{"id":"e","type":"info","content":"Request cancelled."}`, said("b", "2")},
		"a: completed":            {said("c", "<session_context>\n"), said("a", "1"), `{"id":"f","type":"user","content":[{"functionResponse":{"id":"t"}}]}`, answer("x", "so", ""), said("h", "/help")},
	} {
		l := storeLines(t, lines...)
		l.Quiet()
		var got []string
		outcome := make(map[string]string)
		for _, p := range transcripts.Payloads[*events.RunFinished](l) {
			outcome[p.Run.ID] = ": " + p.Outcome
		}
		for _, p := range transcripts.Payloads[*events.RunCreated](l) {
			got = append(got, p.Run.ID+outcome[p.Run.ID])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A response costs once, in classes that do not overlap.
func TestCost(t *testing.T) {
	l := storeLines(t, answer("b", "", ""), answer("b", "", toolCall), answer("c", "2", ""), `{"$set":{"messages":[`+answer("c", "2", "")+`]}}`)
	costs := transcripts.Payloads[*events.CostAccrued](l)
	want := events.Tokens{Input: 71, Output: 8, Reasoning: 3, CacheRead: 20}
	if len(costs) != 2 || *costs[0].Tokens != want || !strings.HasPrefix(costs[0].Response, "b/") || !events.IsUnique(costs[0].Response) || len(costs) > 1 && costs[0].Response == costs[1].Response || costs[0].Model != "m" {
		t.Errorf("got %+v", costs)
	}
	if want.Total() != 99 {
		t.Errorf("the tokens sum to %d, want 99", want.Total())
	}
}

// A file's path and first line determine its session, thread and stem. Other paths are not sessions.
func TestFiles(t *testing.T) {
	a := gemini.Agent{}
	for name, want := range map[string]string{
		file:                     sessionID + " main session-2026-01-02T03-04-5a5a5a5a",
		"tmp/" + file:            sessionID + " main session-2026-01-02T03-04-5a5a5a5a",
		"pier/chats/s-1/x.jsonl": "gemini/s-1 agent/x s-1/x",
		"pier/chats/session-2026-01-02T03-04-5a5a5a5a.json": "gemini/5a5a5a5a main session-2026-01-02T03-04-5a5a5a5a.json",
		"pier/logs.json":                                     "",
		"pier/chats/notes.jsonl":                             "",
		"pier/chats/../x/y.jsonl":                            "",
		"pier/session-2026-01-02T03-04-5a5a5a5a.jsonl":       "",
		"pier/chats/session-2026-01-02T03-99-5a5a5a5a.jsonl": "",
	} {
		first := []byte(head)
		if strings.HasSuffix(name, ".json") {
			first = []byte("{")
		}
		f, ok := a.File(name, first)
		got := ""
		if ok {
			got = f.Session + " " + f.Thread + " " + f.Stem
		}
		if got != want || a.Wants(name) != ok {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if f, ok := a.File(file, []byte("torn")); !ok || f.Session != "gemini/5a5a5a5a" {
		t.Errorf("a file whose first line names no session is %+v", f)
	}
	env := map[string]string{"HOME": "/home/ada"}
	if got := a.Roots(func(k string) string { return env[k] }); !slices.Equal(got, []string{"/home/ada/.gemini/tmp"}) {
		t.Errorf("roots %q", got)
	}
	env["GEMINI_CLI_HOME"] = "/srv"
	if got := a.Roots(func(k string) string { return env[k] }); !slices.Equal(got, []string{"/srv/.gemini/tmp"}) {
		t.Errorf("roots %q", got)
	}
}

// The recorded session reads as in Gemini CLI: its rules make the list, and the newest version of each message
// counts. The costs are the sums of the tokens in the file.
func TestRecorded(t *testing.T) {
	name := "demo/chats/session-2026-11-22T06-59-c57e0669.jsonl"
	content, err := os.ReadFile(testkit.Data(t, "agents", "gemini-0.61", "tmp", name))
	if err != nil {
		t.Fatal(err)
	}
	l := transcripts.New(t, gemini.Agent{})
	l.Append(name, content)
	l.Quiet()
	const session = "gemini/c57e0669-1ad0-4271-a7d8-64dc15e0b41a"
	var got []string
	for _, turn := range l.Live(session, "main") {
		got = append(got, messageIn(t, turn.Raw))
	}
	want := read(t, content)
	if !slices.Equal(got, want) {
		t.Errorf("messages in effect are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(l.Lines) != bytes.Count(content, []byte("\n")) {
		t.Errorf("got %d lines", len(l.Lines))
	}
	var sum int64
	for _, p := range transcripts.Payloads[*events.CostAccrued](l) {
		sum += p.Tokens.Total()
	}
	if total := totals(t, content); sum != total || total != 3*927 {
		t.Errorf("got %d tokens, want %d as in the file", sum, total)
	}
	s := l.Session(session)
	if s.Ledger.Text("cwd") != "/home/dev/demo" || len(s.Ledger.Rejected) > 0 {
		t.Errorf("got the cwd %q and the rejected records %v", s.Ledger.Text("cwd"), s.Ledger.Rejected)
	}
	for _, p := range transcripts.Payloads[*events.RunFinished](l) {
		if p.Outcome != "completed" {
			t.Errorf("got %+v", p)
		}
	}
	// a resume repeats all messages; only new ones are stored again
	listing, n := []byte("Directory listing for"), 0
	for _, rec := range l.Records {
		n += bytes.Count(rec.Data, listing)
	}
	if want := bytes.Count(content, listing) + 1; n != want {
		t.Errorf("the listing is stored %d times, want %d", n, want)
	}
}

// messageIn returns the compared parts of a message: speaker, id, text and calls.
func messageIn(t testing.TB, raw []byte) string {
	var m struct {
		ID, Type  string
		Content   any
		ToolCalls []struct{ ID string }
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	text := fmt.Sprint(m.Content)
	var calls []string
	if parts, ok := m.Content.([]any); ok {
		text = ""
		for _, part := range parts {
			p := part.(map[string]any)
			switch call, ok := p["functionCall"].(map[string]any); {
			case ok:
				calls = append(calls, call["id"].(string))
			case p["text"] != nil:
				text += p["text"].(string)
			default:
				text += fmt.Sprint(p)
			}
		}
	}
	for _, c := range m.ToolCalls {
		calls = append(calls, c.ID)
	}
	return strings.Join([]string{m.Type, m.ID, text, strings.Join(calls, ",")}, "|")
}

// read implements Gemini CLI's own rule for a file: a map of messages in the order of their first lines.
func read(t testing.TB, content []byte) []string {
	var order []string
	have := make(map[string]string)
	put := func(raw json.RawMessage) {
		var m struct{ ID *string }
		if json.Unmarshal(raw, &m) != nil || m.ID == nil {
			return
		}
		if _, ok := have[*m.ID]; !ok {
			order = append(order, *m.ID)
		}
		have[*m.ID] = messageIn(t, raw)
	}
	for line := range bytes.Lines(content) {
		var r struct {
			ID  *string
			To  *string                                `json:"$rewindTo"`
			Set *struct{ Messages *[]json.RawMessage } `json:"$set"`
		}
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		switch {
		case r.To != nil:
			i := max(0, slices.Index(order, *r.To))
			for _, id := range order[i:] {
				delete(have, id)
			}
			order = order[:i]
		case r.ID != nil:
			put(line)
		case r.Set != nil && r.Set.Messages != nil:
			order = nil
			clear(have)
			for _, m := range *r.Set.Messages {
				put(m)
			}
		}
	}
	var list []string
	for _, id := range order {
		list = append(list, have[id])
	}
	return list
}

// totals returns the sum of the total tokens of the messages in a file, each counted once.
func totals(t testing.TB, content []byte) (sum int64) {
	seen := make(map[string]int64)
	for line := range bytes.Lines(content) {
		var m struct {
			ID     string
			Tokens struct{ Total int64 }
		}
		if json.Unmarshal(line, &m) == nil && m.ID != "" {
			seen[m.ID] = max(seen[m.ID], m.Tokens.Total)
		}
	}
	for _, n := range seen {
		sum += n
	}
	return sum
}

func mustJSON(t testing.TB, v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A file of an older version is read after its last line.
func TestOlder(t *testing.T) {
	content, err := os.ReadFile(testkit.Data(t, "agents", "growth", "gemini-old.json"))
	if err != nil {
		t.Fatal(err)
	}
	content = append(bytes.TrimRight(content, "\n"), '\n')
	l := transcripts.New(t, gemini.Agent{})
	l.Append("pier/chats/session-2026-01-15T20-51-f7633853.json", content)
	var whole struct {
		Messages []struct {
			ID     string
			Tokens struct{ Total int64 }
		}
	}
	if err := json.Unmarshal(content, &whole); err != nil {
		t.Fatal(err)
	}
	turns := l.Live("gemini/f7633853", "main")
	if len(turns) != len(whole.Messages) || len(turns) != 13 {
		t.Fatalf("got %d messages, want %d", len(turns), len(whole.Messages))
	}
	var want, got int64
	for i, m := range whole.Messages {
		if turns[i].ID != m.ID {
			t.Errorf("message %d is %s, want %s", i, turns[i].ID, m.ID)
		}
		want += m.Tokens.Total
	}
	for _, p := range transcripts.Payloads[*events.CostAccrued](l) {
		got += p.Tokens.Total()
	}
	if got != want {
		t.Errorf("got %d tokens, want %d as in the file", got, want)
	}
	if n := len(l.Live("gemini/f7633853", agents.Log)); n != bytes.Count(content, []byte("\n")) {
		t.Errorf("got %d lines", n)
	}
}
