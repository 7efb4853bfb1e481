package claude_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
)

// foldedFile is a file whose lines were folded.
type foldedFile struct {
	lines []agents.Meaning
	quiet []agents.Fact
}

// foldFile folds the lines of a file, which end in newlines. It checks that all facts can be stored.
func foldFile(t fataler, name, content string) foldedFile {
	t.Helper()
	first, _, _ := strings.Cut(content, "\n")
	f, ok := claude.Agent{}.File(name, []byte(first))
	if !ok {
		t.Fatalf("%s is not a transcript", name)
	}
	fold := claude.Agent{}.Fold(f)
	out := foldedFile{lines: foldFrom(t, fold, 0, content)}
	out.quiet = fold.Quiet()
	checkFacts(t, out.quiet)
	if again := fold.Quiet(); len(again) > 0 {
		t.Fatalf("a second call of Quiet returned %+v, want nothing", again)
	}
	return out
}

// foldFrom folds the lines from an offset on.
func foldFrom(t fataler, fold agents.Fold, at int64, content string) []agents.Meaning {
	t.Helper()
	var list []agents.Meaning
	for line := range strings.Lines(content) {
		span := agents.Span{Start: at, End: at + int64(len(line))}
		m := fold.Line(span, []byte(strings.TrimSuffix(line, "\n")))
		if m.Thread == "" {
			t.Fatalf("got a line without a thread: %.200s", line)
		}
		checkFacts(t, append(m.Before[:len(m.Before):len(m.Before)], m.After...))
		list, at = append(list, m), span.End
	}
	return list
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// checkFacts checks that the keys of facts differ, and that their payloads are valid once the ingester has filled in
// its members.
func checkFacts(t fataler, facts []agents.Fact) {
	t.Helper()
	keys := make(map[string]bool)
	for _, f := range facts {
		if keys[f.Key] || f.Key == "" {
			t.Fatalf("the key %q occurs twice", f.Key)
		}
		keys[f.Key] = true
		switch p := f.Payload.(type) {
		case *events.SessionCreated:
			filled := *p
			if filled.CreatedAt == "" {
				filled.CreatedAt = "2026-01-01T00:00:00Z"
			}
			if filled.Fork != nil {
				filled.Fork = &events.Fork{Session: p.Fork.Session, Offset: 1}
			}
			mustEncode(t, &filled)
		case *events.SessionRewound:
			mustEncode(t, &events.SessionRewound{To: 1, Reason: p.Reason, Raw: p.Raw})
		default:
			mustEncode(t, p)
		}
	}
}

func mustEncode(t fataler, p events.Payload) {
	t.Helper()
	if _, err := events.Encode(p); err != nil {
		t.Fatalf("encode %T: %v", p, err)
	}
}

// facts returns all facts of a file in order: those before a line, those after it, and finally those of Quiet.
func (d foldedFile) facts() []agents.Fact {
	var list []agents.Fact
	for _, m := range d.lines {
		list = append(append(list, m.Before...), m.After...)
	}
	return append(list, d.quiet...)
}

// of returns the payloads of a type.
func of[P events.Payload](facts []agents.Fact) []P {
	var list []P
	for _, f := range facts {
		if p, ok := f.Payload.(P); ok {
			list = append(list, p)
		}
	}
	return list
}

// rewinds returns the targets of the rewinds.
func (d foldedFile) rewinds() []int64 {
	var list []int64
	for _, f := range d.facts() {
		if _, ok := f.Payload.(*events.SessionRewound); ok {
			list = append(list, f.Position.End)
		}
	}
	return list
}

// A sheet writes a transcript in the form of Claude Code, with text of the tests.
type sheet struct {
	strings.Builder
	n int
}

// line writes a line with these members, and returns its end.
func (s *sheet) line(members string) int64 {
	fmt.Fprintf(s, "{%s}\n", members)
	return int64(s.Len())
}

// entry writes an entry that follows another one. The parent "" is null.
func (s *sheet) entry(kind, parent, rest string) (uuid string) {
	s.n++
	uuid = fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.n)
	follows := "null"
	if parent != "" {
		follows = `"` + parent + `"`
	}
	s.line(fmt.Sprintf(`"parentUuid":%s,"isSidechain":false,"cwd":"/home/ada/engine","sessionId":"s","version":"2.1.7","type":%q,%s,"uuid":%q,"timestamp":"2026-01-27T09:%02d:%02d.000Z"`,
		follows, kind, rest, uuid, s.n/60%60, s.n%60))
	return uuid
}

func (s *sheet) prompt(parent, text string) string {
	return s.entry("user", parent, fmt.Sprintf(`"message":{"role":"user","content":%q}`, text))
}

func (s *sheet) result(parent, call string) string {
	return s.entry("user", parent, fmt.Sprintf(`"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"done"}]},"toolUseResult":{"stdout":"done"}`, call))
}

func (s *sheet) say(parent, response string, output int, block string) string {
	return s.entry("assistant", parent, fmt.Sprintf(`"message":{"id":%q,"type":"message","role":"assistant","model":"claude-opus-4-5","content":[%s],"stop_reason":null,"usage":{"input_tokens":3,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":%d}}`,
		response, block, output))
}

func (s *sheet) text(parent, response string, output int) string {
	return s.say(parent, response, output, `{"type":"text","text":"So it is."}`)
}

func (s *sheet) call(parent, response string, output int, id string) string {
	return s.say(parent, response, output, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"Bash","input":{"command":"ls"}}`, id))
}

func (s *sheet) system(parent, subtype, rest string) string {
	return s.entry("system", parent, fmt.Sprintf(`"subtype":%q%s`, subtype, rest))
}

// folded folds the sheet as a session's own file.
func (s *sheet) folded(t fataler) foldedFile {
	return foldFile(t, "-home-ada-engine/s.jsonl", s.String())
}

// A file's path, and for an old sub-agent its first line, determine its session and thread. Other paths are not
// transcripts.
func TestFiles(t *testing.T) {
	const line = `{"sessionId":"5c03","isSidechain":true}`
	for name, want := range map[string]agents.File{
		"-p/5c03.jsonl":                                               {Stem: "5c03", Session: "claude/-p/5c03", Thread: "main"},
		"-p/5c03/subagents/agent-ab.jsonl":                            {Stem: "5c03/subagents/agent-ab", Session: "claude/-p/5c03", Thread: "agent/ab"},
		"-p/5c03/subagents/workflows/r1/agent-ab.jsonl":               {Stem: "5c03/subagents/workflows/r1/agent-ab", Session: "claude/-p/5c03", Thread: "agent/ab"},
		"-p/agent-1a2b3c4d.jsonl":                                     {Stem: "agent-1a2b3c4d", Session: "claude/-p/5c03", Thread: "agent/1a2b3c4d"},
		"5c03.jsonl":                                                  {},
		"-p/5c03.json":                                                {},
		"-p/5c03/tool-results/x.jsonl":                                {},
		"-p/5c03/subagents/agent-ab.meta.json":                        {},
		"-p/5c03/subagents/notes.jsonl":                               {},
		"-p/agent-.jsonl":                                             {},
		"-p/../5c03.jsonl":                                            {},
		"-p/" + strings.Repeat("long", 130) + ".jsonl":                {},
		"-p/" + strings.Repeat("l", 512-len("claude/-p/")) + ".jsonl": {Stem: strings.Repeat("l", 502), Session: "claude/-p/" + strings.Repeat("l", 502), Thread: "main"},
	} {
		f, ok := claude.Agent{}.File(name, []byte(line))
		if ok != (want.Session != "") {
			t.Errorf("%s: got %v", name, ok)
		}
		if want.Name = name; ok && f != want {
			t.Errorf("got %+v, want %+v", f, want)
		}
		if wants := (claude.Agent{}).Wants(name); ok && !wants {
			t.Errorf("%s is a transcript, want that it is not", name)
		}
	}
	for _, first := range []string{``, `{"sessionId":`, `{"sessionId":7}`, `{"sessionId":"a/b"}`} {
		if _, ok := (claude.Agent{}).File("-p/agent-1a2b3c4d.jsonl", []byte(first)); ok {
			t.Errorf("a sub-agent's file with the first line %s is accepted, want a refusal", first)
		}
	}
}

func TestRoots(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"HOME=/h", "/h/.claude/projects /h/.config/claude/projects"},
		{"HOME=/h XDG_CONFIG_HOME=/x", "/h/.claude/projects /x/claude/projects"},
		{"HOME=/h CLAUDE_CONFIG_DIR=/a,/b/", "/a/projects /b/projects"},
		{"", ""},
	} {
		env := make(map[string]string)
		for _, kv := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		if got := strings.ReplaceAll(strings.Join(claude.Agent{}.Roots(func(name string) string { return env[name] }), " "), `\`, "/"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.env, got, c.want)
		}
	}
}

// Parallel calls of tools, an unanswered prompt, and reports of hooks add children to a parent. None of them is a
// rewind; an edited prompt is.
func TestRewind(t *testing.T) {
	var s sheet
	p1 := s.prompt("", "First")
	call1 := s.call(p1, "m1", 5, "t1")
	call2 := s.call(call1, "m1", 9, "t2")
	s.entry("progress", call1, `"data":{"type":"bash_progress"}`)
	r1 := s.result(call1, "t1")
	r2 := s.result(call2, "t2")
	a := s.text(r1, "m2", 4)
	s.prompt(call1, "while that went on") // the branch below call1 does not begin with a prompt
	s.prompt(r2, "and this")
	end := s.system(a, "turn_duration", `,"durationMs":12`)
	endPos := int64(s.Len())
	s.prompt(end, "lost")
	again := s.prompt(end, "Second")
	s.text(again, "m3", 4)
	from := s.Len()
	edited := s.prompt(end, "Second, better")
	s.WriteString(s.String()[from:]) // written twice
	s.text(edited, "m4", 4)
	s.line(`"type":"user","parentUuid":"` + end + `","uuid":"meta","isMeta":true,"message":{"role":"user","content":"caveat"}`)
	s.line(`"type":"user","parentUuid":"` + end + `","uuid":"side","isSidechain":true,"message":{"role":"user","content":"go"}`)
	s.line(`"type":"user","parentUuid":"` + end + `","uuid":"sum","isCompactSummary":true,"message":{"role":"user","content":"so far"}`)
	s.prompt("no-such-entry", "an orphan")
	third := s.prompt(end, "Second, best")
	s.text(third, "m5", 4)
	s.prompt("", "First, but better")
	if got, want := s.folded(t).rewinds(), []int64{endPos, endPos, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("rewinds to %d, want %d", got, want)
	}
}

// A session starts with the program's own entries. The prompt beside them is not a rewind, whatever the entries are.
func TestNoRewindAtStart(t *testing.T) {
	var s sheet
	hook := s.entry("progress", "", `"data":{"type":"hook_progress"}`)
	caveat := s.entry("user", hook, `"isMeta":true,"message":{"role":"user","content":"Caveat"}`)
	command := s.prompt(caveat, "<command-name>/exit</command-name>")
	out := s.prompt(command, "<local-command-stdout>Bye!</local-command-stdout>")
	s.entry("assistant", out, `"message":{"role":"assistant","model":"<synthetic>","content":[{"type":"text","text":"No response requested."}]},"isApiErrorMessage":false`)
	p := s.prompt(hook, "Now to work")
	s.text(p, "m1", 1)
	d := s.folded(t)
	if got := d.rewinds(); got != nil {
		t.Errorf("rewinds to %d, want none", got)
	}
	if runs := of[*events.RunCreated](d.facts()); len(runs) != 1 || runs[0].Run.ID != p {
		t.Errorf("turns: %+v", runs)
	}
}

// After a compaction the conversation has a new beginning, and no prompt goes back to it. Entries may come in any
// order, and may follow each other in a ring.
func TestOddTrees(t *testing.T) {
	var s sheet
	p := s.prompt("", "First")
	s.text(p, "m1", 1)
	s.line(`"type":"system","subtype":"compact_boundary","parentUuid":null,"uuid":"b"`)
	s.prompt("", "Second")
	s.line(`"type":"assistant","parentUuid":"late-p","uuid":"late-a","message":{"role":"assistant","model":"m","content":[]}`)
	s.line(`"type":"user","parentUuid":"late","uuid":"late-p","message":{"role":"user","content":"asked"}`)
	late := s.line(`"type":"system","subtype":"x","parentUuid":"ring-1","uuid":"late"`)
	s.line(`"type":"user","parentUuid":"late","uuid":"late-q","message":{"role":"user","content":"asked better"}`)
	s.line(`"type":"assistant","parentUuid":"ring-2","uuid":"ring-1","message":{"role":"assistant","model":"m","content":[]}`)
	s.line(`"type":"assistant","parentUuid":"ring-1","uuid":"ring-2","message":{"role":"assistant","model":"m","content":[]}`)
	s.line(`"type":"user","parentUuid":"self","uuid":"self","message":{"role":"user","content":"x"}`)
	hooked := s.line(`"type":"system","subtype":"x","parentUuid":null,"uuid":"hooked"`)
	s.line(`"type":"progress","parentUuid":"hooked","uuid":"hook"`)
	s.line(`"type":"user","parentUuid":"hook","uuid":"h-p","message":{"role":"user","content":"asked"}`)
	s.line(`"type":"assistant","parentUuid":"h-p","uuid":"h-a","message":{"role":"assistant","model":"m","content":[]}`)
	s.line(`"type":"user","parentUuid":"hooked","uuid":"h-q","message":{"role":"user","content":"asked better"}`)
	s.line(`"type":"system","subtype":"x","parentUuid":null,"uuid":"base"`)
	s.line(`"type":"user","parentUuid":"late-b","uuid":"b-p","message":{"role":"user","content":"asked"}`)
	s.line(`"type":"assistant","parentUuid":"b-p","uuid":"b-a","message":{"role":"assistant","model":"m","content":[]}`)
	s.line(`"type":"assistant","parentUuid":"base","uuid":"late-b","message":{"role":"assistant","model":"m","content":[]}`)
	s.line(`"type":"user","parentUuid":"base","uuid":"b-q","message":{"role":"user","content":"beside an answer"}`)
	if got := s.folded(t).rewinds(); !reflect.DeepEqual(got, []int64{late, hooked}) {
		t.Errorf("rewinds to %d, want %d", got, late)
	}
}

// The usage of a response counts once, from its line with the most output.
func TestCosts(t *testing.T) {
	var s sheet
	p := s.prompt("", "Count")
	a := s.say(p, "m1", 1, `{"type":"thinking","thinking":"Hm."}`)
	c1 := s.call(a, "m1", 40, "t1")
	r := s.result(c1, "t1")
	c2 := s.call(r, "m1", 38, "t2") // it follows a result and has less output
	s.entry("assistant", c2, `"message":{"id":"e","role":"assistant","model":"<synthetic>","content":[],"usage":{"input_tokens":0,"output_tokens":0}}`)
	s.entry("assistant", c2, `"costUSD":0.0125,"message":{"role":"assistant","model":"claude-3","content":[],"usage":{"output_tokens":2,"input_tokens":-1,"cache_read_input_tokens":1e3}},"requestId":"req"`)
	s.text(c2, "m2", 7)
	var got []string
	for _, c := range of[*events.CostAccrued](s.folded(t).facts()) {
		if !events.IsUnique(c.Response) {
			t.Errorf("B-11: the response id %q is not unique", c.Response)
		}
		id, _, _ := strings.Cut(c.Response, "/")
		got = append(got, fmt.Sprintln(id, c.Model, *c.Tokens, c.USD, c.Run.ID == p, c.Source))
	}
	want := []string{"m1 claude-opus-4-5 {3 40 0 100 20}  true reported\n", "req claude-3 {0 2 0 0 0} 0.0125 true reported\n", "m2 claude-opus-4-5 {3 7 0 100 20}  true reported\n"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Only a valid, positive number of dollars becomes an amount.
func TestDollars(t *testing.T) {
	for spelled, want := range map[string]events.Amount{
		"0.25": "0.25", "1e-3": "0.001", "2.5E1": "25", "0": "", "-1": "", "1e999999999": "", "1e-90": "", `"1"`: "", "null": "",
	} {
		var s sheet
		s.entry("assistant", "", `"costUSD":`+spelled+`,"message":{"id":"m","role":"assistant","model":"x","content":[],"usage":{"output_tokens":1}}`)
		if c := of[*events.CostAccrued](s.folded(t).facts()); len(c) != 1 || c[0].USD != want {
			t.Errorf("%s: got %+v, want %q", spelled, c, want)
		}
	}
}

// The outcomes of turns.
func TestTurns(t *testing.T) {
	var s sheet
	ask := func(parent string) string { return s.prompt(parent, "Go on") }
	var want []string
	p := ask("")
	last := s.system(s.text(p, "m1", 1), "turn_duration", `,"durationMs":1500`)
	want = append(want, p+` completed {"durationMs":1500}`)
	p = ask(last)
	last = s.text(p, "m2", 1)
	want = append(want, p+" completed {}")
	p = ask(last)
	last = s.prompt(s.call(p, "m3", 1, "t"), "[Request interrupted by user for tool use]")
	want = append(want, p+" interrupted {}")
	p = ask(last)
	last = s.prompt(p, "Operation stopped by hook: no")
	want = append(want, p+" stopped:hook {}")
	p = ask(last)
	last = s.entry("assistant", p, `"isApiErrorMessage":true,"message":{"role":"assistant","model":"<synthetic>","content":[{"type":"text","text":"API Error"}]}`)
	want = append(want, p+" failed {}")
	p = ask(last)
	last = s.call(p, "m4", 1, "t")
	want = append(want, p+" stopped:unfinished {}")
	p = s.prompt(last, "<command-name>/review</command-name>")
	last = s.text(p, "m5", 1)
	want = append(want, p+" completed {}")
	from := s.Len()
	p = ask(last)
	again := s.String()[from:] // written twice, as after a torn line
	s.WriteString(again)
	s.text(p, "m6", 1)
	s.WriteString(again)
	want = append(want, p+" completed {}")
	var got []string
	for _, r := range of[*events.RunFinished](s.folded(t).facts()) {
		got = append(got, fmt.Sprint(r.Run.ID, " ", r.Outcome, " ", string(r.Result)))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// While a tool runs or the model thinks, the file may be quiet: the turn stays open. A line after a reported end
// reopens the turn.
func TestQuiet(t *testing.T) {
	var s sheet
	p := s.prompt("", "Go")
	c := s.call(p, "m1", 1, "t")
	f, _ := claude.Agent{}.File("-p/s.jsonl", nil)
	fold := claude.Agent{}.Fold(f)
	foldFrom(t, fold, 0, s.String())
	if got := of[*events.RunFinished](fold.Quiet()); got != nil {
		t.Errorf("the turn ended while a tool ran: %+v", got)
	}
	step := func(write func()) []agents.Fact {
		from := s.Len()
		write()
		facts := foldedFile{lines: foldFrom(t, fold, int64(from), s.String()[from:])}.facts()
		return append(facts, fold.Quiet()...)
	}
	if got := of[*events.RunFinished](step(func() { c = s.text(s.result(c, "t"), "m2", 5) })); len(got) != 1 || got[0].Outcome != "completed" {
		t.Errorf("got %+v", got)
	}
	facts := step(func() { s.text(c, "m2", 8) })
	if got := of[*events.RunFinished](facts); len(got) != 1 {
		t.Errorf("a line after the end returned %+v", got)
	}
	if got := of[*events.CostAccrued](facts); len(got) != 1 || got[0].Tokens.Output != 8 {
		t.Errorf("the usage after the end is %+v", got)
	}
	if got := of[*events.RunFinished](step(func() { s.prompt(c, "Thanks") })); got != nil {
		t.Errorf("the turn ended a second time: %+v", got)
	}
}

// Threads, and the properties of a session.
func TestThreads(t *testing.T) {
	var s sheet
	s.line(`"type":"file-history-snapshot","messageId":"x","snapshot":{"timestamp":"2026-01-27T09:00:00Z"}`)
	p := s.prompt("", "Go")
	s.line(`"type":"user","parentUuid":null,"isSidechain":true,"uuid":"side-1","message":{"role":"user","content":"look"}`)
	s.line(`"type":"assistant","parentUuid":"side-1","isSidechain":true,"uuid":"side-2","message":{"id":"m","role":"assistant","model":"x","content":[]}`)
	s.line(`"type":"user","parentUuid":null,"isSidechain":true,"agentId":"ab","uuid":"side-3","message":{"role":"user","content":"look"}`)
	s.line(`"type":"attachment","parentUuid":"` + p + `","uuid":"q","attachment":{"type":"queued_command","prompt":"and this"}`)
	s.line(`"type":"attachment","parentUuid":"` + p + `","uuid":"o","attachment":{"type":"todo"}`)
	s.line(`"type":"never-seen"`)
	s.WriteString("\nno JSON\n{\"torn\n\x00\n")
	s.WriteString(`{"type":"system","subtype":"x","uuid":"` + p + `"}` + "\n")
	glued := `{"type":"assistant","uuid":"g","message":{"id":"mg","role":"assistant","model":"x","content":[]}}{"type":"custom-title","customTitle":"Wheels"}`
	s.WriteString(glued + "\n" + strings.Split(glued, "}{")[0] + "}\n")
	d := s.folded(t)
	var got []string
	for _, m := range d.lines {
		got = append(got, m.Thread+" "+m.ID+" "+m.Turn)
	}
	want := []string{"log  ", "main " + p + " " + p, "agent/side-1 side-1 side-1", "agent/side-1 side-2 m", "agent/ab side-3 side-3", "main q q", "log o ",
		"log  ", "log  ", "log  ", "log  ", "log  ", "log  ", "main  mg", "main g mg"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	created := d.lines[0].Before[0].Payload.(*events.SessionCreated)
	if created.Kind != "transcript" || created.CreatedAt != "2026-01-27T09:00:00Z" || len(d.lines[0].Before) != 1 {
		t.Errorf("got %+v", created)
	}
	var set []string
	for _, u := range of[*events.SessionUpdated](d.facts()) {
		for _, f := range u.Set {
			set = append(set, f.Name+"="+string(f.Value))
		}
	}
	about := []string{`cwd="/home/ada/engine"`, `project="engine"`, `settings={"agent":"claude","version":"2.1.7","parser":1}`, `models=["x"]`, `title="Wheels"`}
	if !reflect.DeepEqual(set, about) {
		t.Errorf("got\n%q\nwant\n%q", set, about)
	}
}

// The user's title ranks before the model's, and that before a summary.
func TestTitles(t *testing.T) {
	var s sheet
	p := s.prompt("", "Go")
	a := s.text(p, "m", 1)
	s.line(`"type":"summary","summary":"of another session","leafUuid":"elsewhere"`)
	s.line(`"type":"summary","summary":"newer","leafUuid":"` + a + `"`)
	s.line(`"type":"summary","summary":"older","leafUuid":"` + p + `"`)
	s.line(`"type":"ai-title","aiTitle":"by the model"`)
	s.line(`"type":"custom-title","customTitle":"by me"`)
	s.line(`"type":"ai-title","aiTitle":"by the model again"`)
	s.line(`"type":"tag","tag":"wheel"`)
	s.line(`"type":"tag","tag":""`)
	var got []string
	for _, u := range of[*events.SessionUpdated](s.folded(t).facts()) {
		for _, f := range u.Set {
			if f.Name == "title" || f.Name == "tag" {
				got = append(got, string(f.Value))
			}
		}
	}
	if want := []string{`"newer"`, `"by the model"`, `"by me"`, `"wheel"`, `null`}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A fork has copies of its parent's lines: it begins before the parent's first one.
func TestFork(t *testing.T) {
	const line = `{"type":"user","uuid":"u","parentUuid":null,"forkedFrom":{"sessionId":"parent","messageUuid":"p"},"timestamp":"2026-01-27T09:00:00Z","cwd":"C:\\work\\engine\\","message":{"role":"user","content":"x"}}`
	created := foldFile(t, "-p/s.jsonl", line+"\n").lines[0].Before[0]
	want := agents.Position{Session: "claude/-p/parent", Stem: "parent"}
	p := created.Payload.(*events.SessionCreated)
	if created.Position == nil || *created.Position != want || p.Fork.Session != want.Session || p.Project != "engine" {
		t.Errorf("%+v, %+v", created, p)
	}
	late := foldFile(t, "-p/s.jsonl", "{}\n"+line+"\n")
	if p := of[*events.SessionCreated](late.facts())[0]; p.Fork != nil || p.CreatedAt != "" {
		t.Errorf("got %+v", p)
	}
	if set := of[*events.SessionUpdated](late.facts())[0].Set.Text("forkedFrom"); set != want.Session {
		t.Errorf("the fork's fields are %q", set)
	}
}

// A sub-agent's file has a thread and costs; turns, rewinds and titles belong to the session.
func TestSubAgent(t *testing.T) {
	var s sheet
	p := s.prompt("", "Look")
	s.text(p, "m1", 1)
	s.prompt("", "Look better")
	s.line(`"type":"custom-title","customTitle":"no"`)
	d := foldFile(t, "-p/s/subagents/agent-ab.jsonl", s.String())
	for _, m := range d.lines {
		if m.Thread != "agent/ab" {
			t.Errorf("got %+v", m)
		}
	}
	var types []string
	for _, f := range d.facts() {
		types = append(types, f.Payload.EventType())
	}
	if want := []string{events.TypeSessionCreated, events.TypeCostAccrued}; !reflect.DeepEqual(types, want) {
		t.Errorf("got %q, want %q", types, want)
	}
}

func mustJSON(t fataler, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(bytes.TrimSpace(raw))
}

// A file whose first line is another program's is not a transcript, whatever its folder and name. If the program is
// unknown, the file's folder and name decide.
func TestOthers(t *testing.T) {
	for _, c := range []struct {
		name, first string
		ours        bool
	}{
		{"Codex", `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"019b7c5e"}}`, false},
		{"Codex, a later line", `{"timestamp":"2026-01-02T03:04:06.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[]}}`, false},
		{"Codex, printed", `{"type":"thread.started","thread_id":"019b7c5e"}`, false},
		{"pi", `{"type":"session","version":3,"id":"019b7c6e","timestamp":"2026-01-02T06:00:00.000Z","cwd":"/pier"}`, false},
		{"pi, older", `{"type":"session_start","id":"019b7c6e"}`, false},
		{"pi, a model", `{"type":"model_change","id":"a","parentId":null,"provider":"p","modelId":"m"}`, false},
		{"Copilot CLI", `{"type":"session.start","data":{"sessionId":"s"},"id":"e","timestamp":"2026-01-02T03:04:05.000Z","parentId":null}`, false},
		{"a prompt", `{"type":"user","sessionId":"s","uuid":"u"}`, true},
		{"a summary", `{"type":"summary","summary":"x","leafUuid":"u"}`, true},
		{"a snapshot", `{"type":"file-history-snapshot","messageId":"m","snapshot":{}}`, true},
		{"a type with a point", `{"type":"queue.operation","sessionId":"s","payload":{}}`, true},
		{"no type", `{"x":1}`, true},
		{"half a line", `{"type":"session","ver`, true},
		{"nothing", ``, true},
	} {
		t.Run("B-22 "+c.name, func(t *testing.T) {
			for _, name := range []string{"-p/s.jsonl", "-p/s/subagents/agent-ab.jsonl"} {
				if _, ok := (claude.Agent{}).File(name, []byte(c.first)); ok != c.ours {
					t.Errorf("%s is a transcript: %v", name, ok)
				}
			}
			if _, ok := (claude.Agent{}).Renamed("-p/s", []byte(c.first)); ok != c.ours {
				t.Errorf("-p/s is a transcript: %v", ok)
			}
		})
	}
}
