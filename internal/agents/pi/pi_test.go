package pi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/pi"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/transcripts"
	"github.com/tallylog/tally/projector"
)

const (
	file      = "--home-ada-pier--/2026-01-02T03-04-05-006Z_s1.jsonl"
	sessionID = "pi/s1"
	head      = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-02T03:04:05.006Z","cwd":"/home/ada/pier"}` + "\n"
)

// entry returns an entry of a tree; the parent "" stands for no parent.
func entry(kind, id, parent, more string) string {
	p := "null"
	if parent != "" {
		p = fmt.Sprintf("%q", parent)
	}
	return fmt.Sprintf(`{"type":%q,"id":%q,"parentId":%s,"timestamp":"2026-01-02T03:04:06.006Z"%s}`, kind, id, p, more) + "\n"
}

func said(id, parent string) string {
	return entry("message", id, parent, `,"message":{"role":"user","content":"`+id+`"}`)
}

func answer(id, parent, stop string) string {
	return entry("message", id, parent, fmt.Sprintf(`,"message":{"role":"assistant","content":[],"model":"m","usage":{"input":3,"output":2,"cacheRead":1,"cacheWrite":0,"cost":{"total":0.0001}},"stopReason":%q,"responseId":"resp_67ccd2bed1ec8190b14f%s"}`, stop, id))
}

func storeLines(t transcripts.T, content string) *transcripts.Log {
	l := transcripts.New(t, pi.Agent{})
	l.Append(file, []byte(content))
	return l
}

// live returns the ids of the messages in effect.
func live(l *transcripts.Log, session string) []string {
	var list []string
	for _, turn := range l.Live(session, agents.Main) {
		list = append(list, turn.ID)
	}
	return list
}

// path implements pi's own rule: the path from the newest entry up to the root, of which pi shows messages and
// summaries.
func path(content string) []string {
	type node struct {
		Type, ID string
		Parent   *string `json:"parentId"`
		Display  *bool
	}
	byID := make(map[string]node)
	leaf := ""
	for line := range strings.Lines(content) {
		var n node
		if json.Unmarshal([]byte(line), &n) == nil && n.Type != "session" && n.ID != "" {
			byID[n.ID], leaf = n, n.ID
		}
	}
	var list []string
	for n, ok := byID[leaf]; ok; {
		if slices.Contains([]string{"message", "compaction", "branch_summary"}, n.Type) || n.Type == "custom_message" && (n.Display == nil || *n.Display) {
			list = append(list, n.ID)
		}
		if n.Parent == nil {
			break
		}
		n, ok = byID[*n.Parent]
	}
	slices.Reverse(list)
	return list
}

// Wherever entries are added to the tree, the turns in effect are the path to the newest one. Every answer costs, on
// any branch.
func TestTreeLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b strings.Builder
		b.WriteString(head)
		ids := []string{""}
		costs := 0
		leaf := ""
		for i := range rapid.IntRange(1, 25).Draw(rt, "entries") {
			parent := leaf
			if rapid.IntRange(0, 3).Draw(rt, "branch") == 0 {
				parent = rapid.SampledFrom(append(ids, "nobody")).Draw(rt, "parent")
			}
			leaf = fmt.Sprintf("%08x", i)
			ids = append(ids, leaf)
			switch rapid.IntRange(0, 7).Draw(rt, "kind") {
			case 0:
				b.WriteString(entry("label", leaf, parent, `,"targetId":"x"`))
			case 1:
				b.WriteString(entry("compaction", leaf, parent, `,"summary":"so"`))
			case 2:
				b.WriteString(entry("branch_summary", leaf, parent, `,"summary":"so","fromId":"x"`))
			case 3:
				b.WriteString(entry("custom_message", leaf, parent, fmt.Sprintf(`,"customType":"c","content":"x","display":%v`, rapid.Bool().Draw(rt, "display"))))
			case 4, 5:
				b.WriteString(said(leaf, parent))
			default:
				costs++
				b.WriteString(answer(leaf, parent, "stop"))
			}
		}
		l := storeLines(rt, b.String())
		if got, want := live(l, sessionID), path(b.String()); !slices.Equal(got, want) {
			rt.Fatalf("messages in effect are %q, want %q, of\n%s", got, want, b.String())
		}
		if got := len(transcripts.Payloads[*events.CostAccrued](l)); got != costs {
			rt.Fatalf("got %d costs, want %d", got, costs)
		}
		if got, want := costly(l), answers(l); !slices.Equal(got, want) {
			rt.Fatalf("the costs in effect are of the responses %q, want %q, of\n%s", got, want, b.String())
		}
		if v := l.Session(sessionID).Ledger.Rejected; len(v) > 0 {
			rt.Fatalf("got events without effect: %+v", v)
		}
	})
}

// costly returns the responses whose costs are in effect, answers those of the answers in effect.
func costly(l *transcripts.Log) (list []string) {
	s := l.Session(sessionID)
	for _, rec := range l.Records {
		if p, ok := projector.Decode(rec).Payload.(*events.CostAccrued); ok && s.History.IsLive(rec.Offset) {
			list = append(list, p.Response)
		}
	}
	return list
}

func answers(l *transcripts.Log) (list []string) {
	for _, turn := range l.Live(sessionID, agents.Main) {
		if bytes.Contains(turn.Raw, []byte(`"role":"assistant"`)) {
			list = append(list, "resp_67ccd2bed1ec8190b14f"+turn.ID)
		}
	}
	return list
}

// Only an entry with another parent than the entry before rewinds, to the line of its parent.
func TestRewinds(t *testing.T) {
	l := storeLines(t, head+said("a", "")+answer("b", "a", "stop")+said("c", "b")+said("d", "b")+said("e", ""))
	var got []string
	for _, p := range transcripts.Payloads[*events.SessionRewound](l) {
		got = append(got, fmt.Sprintf("%d %s %s", p.To, p.Reason, p.Raw))
	}
	to := func(text string) events.Offset {
		for _, rec := range l.Records {
			if rec.Type == events.TypeTurnAppended && bytes.Contains(rec.Data, []byte(text)) {
				return rec.Offset
			}
		}
		return 0
	}
	want := []string{fmt.Sprintf(`%d source {"id":"d","parentId":"b"}`, to(`"id":"b"`)), fmt.Sprintf(`%d source {"id":"e","parentId":null}`, to(`"type":"session"`))}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A copy has the parent, begins no turns and adds no costs.
func TestFork(t *testing.T) {
	l := storeLines(t, head+said("a", "")+answer("b", "a", "stop"))
	fork := strings.Replace(head, `"id":"s1","timestamp":"2026-01-02T03:04:05.006Z"`, `"id":"s2","timestamp":"2026-01-02T04:00:00.000Z","parentSession":"/home/ada/.pi/agent/sessions/`+file+`"`, 1)
	later := strings.ReplaceAll(said("c", "b")+answer("d", "c", "stop"), "T03:04:06", "T04:00:01")
	l.Append("--home-ada-pier--/2026-01-02T04-00-00-000Z_s2.jsonl", []byte(fork+said("a", "")+answer("b", "a", "stop")+later))
	if got := live(l, "pi/s2"); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("messages in effect are %q", got)
	}
	created := transcripts.Payloads[*events.SessionCreated](l)
	if p := created[1]; p.Parent == nil || p.Parent.Session != sessionID || p.Fork != nil || p.CWD != "/home/ada/pier" || p.Project != "pier" {
		t.Errorf("got %+v", p)
	}
	responses := make(map[string]int)
	for _, p := range transcripts.Payloads[*events.CostAccrued](l) {
		responses[p.Response]++
	}
	if len(responses) != 2 || responses["resp_67ccd2bed1ec8190b14fb"] != 2 {
		t.Errorf("responses %v", responses)
	}
	if n := len(transcripts.Payloads[*events.RunCreated](l)); n != 2 {
		t.Errorf("got %d turns", n)
	}
}

// Turns end with the outcome of the answer. After a retry the last outcome counts.
func TestRuns(t *testing.T) {
	for stops, want := range map[string]string{"stop": "completed", "length": "completed", "error": "failed", "aborted": "interrupted", "toolUse": "", "error stop": "completed", "toolUse aborted": "interrupted"} {
		content, parent := head+said("a", ""), "a"
		for i, stop := range strings.Fields(stops) {
			content += answer(fmt.Sprint(i), parent, stop)
			parent = fmt.Sprint(i)
		}
		got := ""
		for _, p := range transcripts.Payloads[*events.RunFinished](storeLines(t, content)) {
			got = p.Outcome
		}
		if got != want {
			t.Errorf("%s is %q, want %q", stops, got, want)
		}
		ended := transcripts.Payloads[*events.RunFinished](storeLines(t, content+said("z", parent)))
		if n := len(strings.Fields(stops)) - strings.Count(stops, "toolUse"); want != "" && len(ended) != n {
			t.Errorf("after %s and another prompt: got %d outcomes, want %d", stops, len(ended), n)
		}
		if want == "" && (len(ended) != 1 || ended[0].Outcome != "stopped:unfinished" || ended[0].Run.ID != "a") {
			t.Errorf("after %s and another prompt: got the outcomes %+v", stops, ended)
		}
	}
}

// Title, working directory, project and models of a session come from its entries.
func TestAbout(t *testing.T) {
	l := storeLines(t, head+entry("model_change", "a", "", `,"provider":"p","modelId":"m-0"`)+answer("b", "a", "stop")+entry("session_info", "c", "b", `,"name":" Gulls "`))
	s := l.Session(sessionID).Ledger
	if s.Text("title") != "Gulls" || s.Text("cwd") != "/home/ada/pier" || s.Text("project") != "pier" {
		t.Errorf("title %q, cwd %q, project %q", s.Text("title"), s.Text("cwd"), s.Text("project"))
	}
	var models string
	for _, p := range transcripts.Payloads[*events.SessionUpdated](l) {
		if p.Set[0].Name == "models" {
			models = string(p.Set[0].Value)
		}
	}
	if models != `["m-0","m"]` {
		t.Errorf("models %s", models)
	}
}

func TestFiles(t *testing.T) {
	a := pi.Agent{}
	for name, want := range map[string]string{
		file:                                 sessionID + " 2026-01-02T03-04-05-006Z_s1",
		"2026-01-02T03-04-05-006Z_s1.jsonl":  sessionID + " 2026-01-02T03-04-05-006Z_s1",
		"2026-01-02T03-04-05-006Z_.jsonl":    "",
		"2026-13-02T03-04-05-006Z_s1.jsonl":  "",
		"2026-01-02T03-04-05-006Z_s1.json":   "",
		"2026-01-02T03-04-05-006Z_s 1.jsonl": "",
		"notes.jsonl":                        "",
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
	env := map[string]string{"HOME": "/home/ada"}
	roots := func() string { return strings.Join(a.Roots(func(k string) string { return env[k] }), " ") }
	if got := roots(); got != "/home/ada/.pi/agent/sessions" {
		t.Errorf("roots %s", got)
	}
	env["PI_CODING_AGENT_DIR"], env["PI_CODING_AGENT_SESSION_DIR"] = "~/pi", "/srv/pi"
	if got := roots(); got != "/srv/pi /home/ada/pi/sessions" {
		t.Errorf("roots %s", got)
	}
}

// Recorded sessions read as in pi, and have the costs of their answers.
func TestRecorded(t *testing.T) {
	root := testkit.Data(t, "agents", "pi-0.73", "sessions")
	files, err := filepath.Glob(filepath.Join(root, "*", "*.jsonl"))
	if err != nil || len(files) != 2 {
		t.Fatalf("got %v, error %v", files, err)
	}
	for _, name := range files {
		content := mustRead(t, name)
		l := transcripts.New(t, pi.Agent{})
		l.Append("x/"+filepath.Base(name), content)
		session := "pi/" + strings.TrimSuffix(name[strings.LastIndexByte(name, '_')+1:], ".jsonl")
		if got, want := live(l, session), path(string(content)); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("messages in effect are %q, want %q", got, want)
		}
		same(t, l, content)
	}
}

// A session of version 1 has no ids: all of its messages are there, with their costs.
func TestVersion1(t *testing.T) {
	content := mustRead(t, testkit.Data(t, "agents", "pi-large-session.jsonl"))
	l := transcripts.New(t, pi.Agent{})
	l.Append("2025-11-20T23-33-50-805Z_d703a1a9.jsonl", content)
	if n := len(l.Live("pi/d703a1a9", agents.Main)); n != 453+373+88 {
		t.Errorf("got %d turns", n)
	}
	if n := len(transcripts.Payloads[*events.SessionRewound](l)); n != 0 {
		t.Errorf("got %d rewinds", n)
	}
	same(t, l, content)
}

// same compares the costs in a log with those of the answers in the file.
func same(t *testing.T, l *transcripts.Log, content []byte) {
	t.Helper()
	var want, got events.Tokens
	usd, paid := new(big.Rat), new(big.Rat)
	for line := range bytes.Lines(content) {
		var e struct {
			Message struct {
				Usage struct {
					Input, Output, CacheRead, CacheWrite int64
					Cost                                 struct{ Total json.Number }
				}
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		u := e.Message.Usage
		want = plus(want, events.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
		if total, ok := new(big.Rat).SetString(string(u.Cost.Total)); ok {
			usd.Add(usd, total)
		}
	}
	responses := make(map[string]bool)
	for _, p := range transcripts.Payloads[*events.CostAccrued](l) {
		if responses[p.Response] {
			t.Errorf("two answers have the id %s", p.Response)
		}
		responses[p.Response] = true
		got = plus(got, *p.Tokens)
		if total, ok := p.USD.Rat(); ok {
			paid.Add(paid, total)
		}
	}
	if got != want || paid.Cmp(usd) != 0 {
		t.Errorf("got %+v for %s USD, want %+v for %s USD as in the file", got, paid.FloatString(9), want, usd.FloatString(9))
	}
	if n := len(l.Lines); n != bytes.Count(content, []byte("\n")) {
		t.Errorf("got %d lines", n)
	}
}

func plus(a, b events.Tokens) events.Tokens {
	return events.Tokens{Input: a.Input + b.Input, Output: a.Output + b.Output, CacheRead: a.CacheRead + b.CacheRead, CacheWrite: a.CacheWrite + b.CacheWrite}
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// For any lines, nothing panics, equal lines have equal results, facts can be stored, and their keys differ.
func FuzzLine(f *testing.F) {
	for _, lines := range []string{
		head + said("a", "") + answer("b", "a", "stop") + said("c", "a") + head + said("a", "") + said("x", "x"),
		said("a", "b") + head, "", "\n\n", "\x00\n{}\n[]\n7\n", entry("message", strings.Repeat("i", 600), "", `,"message":{"role":"user"}`),
		`{"type":"message","message":{"role":"assistant","usage":{"input":9007199254740993,"cost":{"total":1e99}},"stopReason":7}}` + "\n",
		`{"type":"session","version":{"a":1},"parentSession":"x_y.jsonl","timestamp":"0000-01-01T00:00:00Z"}` + "\n" + entry("session_info", "a", "", `,"name":"\ud800"`),
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var results [2]string
		for i := range results {
			l := transcripts.New(t, pi.Agent{})
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
