package render_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// history makes a session from words: turn; late@n, a turn whose producer had read up to n; to@n, a rewind; undo; redo;
// void, a rewind to itself; cost.
func history(t *testing.T, words string) (testkit.Records, *projector.Session) {
	t.Helper()
	var log testkit.Records
	sub := events.Session("", "s")
	head := func() *projector.Outline {
		o, err := (&projector.Loader{Source: log}).Outline(t.Context(), sub, 0)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	load := func() *projector.Session {
		s, err := (&projector.Loader{Source: log}).Session(t.Context(), sub, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, word := range strings.Fields(words) {
		var p events.Payload
		var err error
		name, at, _ := strings.Cut(word, "@")
		offset, seen := events.Offset(len(log)+1), events.Offset(0)
		if at != "" {
			if seen, err = events.ParseOffset(at); err != nil {
				t.Fatal(err)
			}
		}
		switch name {
		case "turn", "late":
			p = &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw("1")}}}
		case "to":
			p = &events.SessionRewound{To: seen}
		case "void":
			p = &events.SessionRewound{To: offset}
		case "undo":
			p, err = head().Undo(t.Context())
		case "redo":
			p, err = head().Redo(t.Context())
		case "cost":
			p = &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported"}
		default:
			t.Fatalf("unknown word %q", word)
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := events.New("urn:test", sub, p)
		if err != nil {
			t.Fatal(err)
		}
		e.ID = word
		if name == "late" {
			e = e.WithExtension(events.ExtBasis, seen.Padded())
		}
		log = append(log, events.Record{Event: e, Offset: offset})
	}
	return log, load()
}

func nodesOf(log testkit.Records, s *projector.Session) []render.Node {
	var nodes []render.Node
	for _, rec := range log {
		n := render.Node{Offset: rec.Offset, Live: s.History.IsLive(rec.Offset), After: s.History.LastLive(rec.Offset - 1), Mark: '*'}
		switch {
		case slices.Contains(s.History.Stale(), rec.Offset), slices.ContainsFunc(s.Ledger.Rejected, func(v projector.Rejected) bool { return v.Offset == rec.Offset }):
			n.Mark = '!'
		case rec.Type == events.TypeSessionRewound:
			n.Mark = '<'
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func TestGraph(t *testing.T) {
	for name, words := range map[string]string{
		"straight":       "turn turn cost",
		"rewind":         "turn turn turn turn to@2 turn turn",
		"undo":           "turn turn turn to@1 turn undo turn",
		"redo":           "turn turn to@1 turn undo redo turn",
		"nested":         "turn turn turn turn to@3 turn turn to@2 turn to@1 turn",
		"into-a-branch":  "turn turn turn to@1 turn to@3 turn to@5 turn",
		"late-and-void":  "turn turn to@1 turn late@2 void turn late@2",
		"rewind-at-once": "turn turn to@1 to@1 to@2 undo",
		"all-left":       "turn turn to@1 undo to@2 to@1",
	} {
		t.Run(name, func(t *testing.T) {
			log, s := history(t, words)
			before, marks := render.Graph(nodesOf(log, s))
			b := &strings.Builder{}
			for i, rec := range log {
				for _, line := range before[i] {
					fmt.Fprintln(b, line)
				}
				fmt.Fprintf(b, "%s%v %s\n", marks[i], rec.Offset, rec.ID)
			}
			golden(t, name+".txt", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%v; want\n%s\ngot\n%s", err, want, got)
	}
}

// For any history, there is a line of marks for each record, all of one width. Live records are in the first lane, and
// no other record has a star there.
func TestGraphOfAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		log := testkit.History().Draw(rt, "log")
		sub := log[0].Subject
		s, err := (&projector.Loader{Source: log}).Session(t.Context(), sub, 0)
		if err != nil {
			rt.Fatal(err)
		}
		own := log.Of(sub)
		nodes := nodesOf(own, s)
		before, marks := render.Graph(nodes)
		if len(before) != len(nodes) || len(marks) != len(nodes) {
			rt.Fatalf("got %d and %d lines for %d nodes", len(before), len(marks), len(nodes))
		}
		for i, n := range nodes {
			if len(marks[i]) != len(marks[0]) || strings.Count(marks[i], string(n.Mark)) != 1 {
				rt.Fatalf("got the marks %q for %+v", marks[i], n)
			}
			if first := marks[i][0] == '*'; n.Mark == '*' && first != n.Live {
				rt.Fatalf("got the marks %q for %+v", marks[i], n)
			}
		}
	})
}

// png is an image of 70 bytes.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestTurn(t *testing.T) {
	for raw, want := range map[string]string{
		`{"role":"user","content":"hi\nthere"}`: "user: hi\nthere",
		`{"Role":"user","Content":"hi"}`:        "user: hi",
		`{"role":"user","content":null}`:        "user: (nothing)",
		`{"role":"user","content":[]}`:          "",
		`"plain"`:                               "text: plain",
		`{"a": [1, 2]}`:                         `json: {"a":[1,2]}`,
		`[1]`:                                   "json: [1]",
		`{"role":"","content":"x"}`:             `json: {"role":"","content":"x"}`,
		`{"role":"user"}`:                       `json: {"role":"user"}`,
		`"\ud800"`:                              `json: "\ud800"`,
		`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"b"},{"type":"reasoning","text":"c"},
			{"type":"tool-call","toolName":"ls","input":{"p": 1}},{"type":"tool_use","name":"ls","input":{}},{"type":"toolCallPart","toolName":"ls","args":[]},
			{"type":"tool-result","toolName":"ls","output":"x"},{"type":"tool_result","content":[ ]},{"type":"image","data":"` + png + `"},{"type":"odd"}, 5]}`: `assistant: a
assistant: (thinking) b
assistant: (thinking) c
call: ls {"p":1}
call: ls {}
call: ls []
result: ls x
result: []
assistant: (image, 70 B)
assistant: {"type":"odd"}
assistant: 5`,
		`{"input":{"role":"user","content":"q"},"output":[{"role":"assistant","content":"a"},{"role":"tool","content":[{"type":"tool-result","output":1}]}]}`: "user: q\nassistant: a\nresult: 1",
		`{"input":{"role":"user","content":"q"},"output":[]}`:  "user: q",
		`{"input":{"role":"user","content":"q"},"output":[5]}`: `json: {"input":{"role":"user","content":"q"},"output":[5]}`,
		`{"input":5,"output":[]}`:                              `json: {"input":5,"output":[]}`,
	} {
		var got []string
		for _, line := range render.Turn(projector.Turn{Raw: events.Raw(raw)}) {
			got = append(got, line.Role+": "+line.Text)
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s: got\n%s\nwant\n%s", raw, strings.Join(got, "\n"), want)
		}
	}
	if lines := render.Turn(projector.Turn{Bytes: make([]byte, 2048)}); len(lines) != 1 || lines[0].Text != "2.0 KB, not JSON" {
		t.Errorf("got %v", lines)
	}
	if lines := render.Turn(projector.Turn{Raw: events.Raw(`{}`), Erased: "r7k2p9"}); len(lines) != 1 || lines[0] != (render.Line{Role: "erased", Text: "receipt r7k2p9"}) {
		t.Errorf("got %v", lines)
	}
	if lines := render.Turn(projector.Turn{Bytes: []byte("two gulls")}); len(lines) != 1 || lines[0] != (render.Line{Role: "text", Text: "two gulls"}) {
		t.Errorf("got %v", lines)
	}
}

// A result with only the id of its call gets the name of the tool, if the call is in the same turn or an earlier one.
func TestCalls(t *testing.T) {
	var c render.Calls
	for _, turn := range []struct{ raw, want string }{
		{`{"role":"tool","tool_call_id":"a","content":"early"}`, "result: early"},
		{`{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"lookup","arguments":"{\"q\":\"France\"}"}}]}`, `call: lookup {"q":"France"}`},
		{`{"role":"tool","tool_call_id":"a","content":"Paris"}`, "result: lookup Paris"},
		{`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"gone"},{"type":"tool_result","tool_use_id":"b","content":"?"}]}`, "result: lookup error: gone\nresult: ?"},
		{`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"find","input":{}},{"type":"tool_result","tool_use_id":"a","content":"here"}]}`, "call: find {}\nresult: find here"},
	} {
		var got []string
		for _, line := range c.Turn(projector.Turn{Raw: events.Raw(turn.raw)}) {
			got = append(got, line.Role+": "+line.Text)
		}
		if strings.Join(got, "\n") != turn.want {
			t.Errorf("%s: got\n%s\nwant\n%s", turn.raw, strings.Join(got, "\n"), turn.want)
		}
	}
}

// The text for search has no labels and no images, and strings are unescaped.
func TestText(t *testing.T) {
	large := strings.Repeat(png[:64], 5)
	for raw, want := range map[string]string{
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"redacted_thinking","data":"` + png + `"},{"type":"text","text":""}]}`:           "assistant|hm",
		`{"role":"assistant","content":[{"type":"tool_use","name":"ls","input":{"p":"a\nb","n":12}}]}`:                                                               "call|ls\n{\"p\":\"a\nb\",\"n\":12}",
		`{"role":"user","content":[{"type":"image","title":"boat","source":{"data":"` + large + `"}},{"type":"odd","data":"` + large + `","note":"\u00e9t\u00e9"}]}`: "user|boat\n{\"type\":\"odd\",\"data\":,\"note\":\"été\"}",
		`{"role":"assistant","content":null,"refusal":"I must not."}`:                                                                                                "assistant|I must not.",
		`{"a":["b\tc"]}`: "json|{\"a\":[\"b\tc\"]}",
		`{"role":"user","content":"data:image/png;base64,` + png + `"}`: "user|",
	} {
		if said := render.Said(projector.Turn{Raw: events.Raw(raw)}); said.Roles+"|"+said.Text != want {
			t.Errorf("%s: got\n%q\nwant\n%q", raw, said.Roles+"|"+said.Text, want)
		}
	}
}

// The summary of a turn is a message or a call. It is a thought only if the turn has nothing else.
func TestSummaryPassesOverThoughts(t *testing.T) {
	for raw, want := range map[string]string{
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use","name":"ls","input":{}}]}`: "call: ls {} (+1)",
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"}]}`:                                            "assistant: (thinking) hm",
	} {
		if got := render.Summary(projector.Turn{Raw: events.Raw(raw)}, 80); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	turn := projector.Turn{Raw: events.Raw(`{"input":{"role":"user","content":"a long\nquestion"},"output":[{"role":"assistant","content":"a"}]}`)}
	for width, want := range map[int]string{80: "user: a long question (+1)", 20: "user: a long q… (+1)", 6: "… (+1)", 3: "us…", 0: ""} {
		if got := render.Summary(turn, width); got != want {
			t.Errorf("%d: got %q, want %q", width, got, want)
		}
	}
	if got := render.Summary(projector.Turn{Raw: events.Raw(`{"role":"user","content":[]}`)}, 20); got != "(empty)" {
		t.Errorf("got %q", got)
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"abcd efgh", 4, []string{"abcd", "efgh"}},
		{"one two three", 9, []string{"one two", "three"}},
		{"a\n\nb", 10, []string{"a", "", "b"}},
		{"  indented text", 10, []string{"  indented", "text"}},
		{"abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"ab cdefghij", 4, []string{"ab", "cdef", "ghij"}},
		{"日本語です", 4, []string{"日本", "語で", "す"}},
		{"\tx", 10, []string{"    x"}},
		{"x", 0, []string{"x"}},
		{"\u0915" + strings.Repeat("\u093e", 9), 4, append([]string{"\u0915\u093e"}, slices.Repeat([]string{"\u093e\u093e"}, 4)...)}, // one grapheme cluster of ten columns
	} {
		if got := render.Wrap(c.in, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q at %d: %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

// Wrap and Cut never exceed the width, and wrapping loses only white space.
func TestWidths(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`([a-z]{1,12}[ \n\t]{0,3}){0,12}`), rapid.StringMatching(`[日本é😀⸻ a\x{0301}\x{0600}\x{0915}\x{093e}]{0,30}`))
	rapid.Check(t, func(t *rapid.T) {
		s, width := text.Draw(t, "text"), rapid.IntRange(-1, 40).Draw(t, "width")
		if got := render.Cut(s, width); uniseg.StringWidth(got) > max(width, 0) || strings.ContainsAny(got, "\n\t") {
			t.Fatalf("the text cut to %d columns is %q", width, got)
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := render.Summary(projector.Turn{Raw: raw}, width); uniseg.StringWidth(got) > max(width, 0) {
			t.Fatalf("the summary in %d columns is %q", width, got)
		}
		lines := render.Wrap(s, width)
		for _, line := range lines {
			if uniseg.StringWidth(line) > max(width, 4) {
				t.Fatalf("the line wrapped to %d columns is %q", width, line)
			}
		}
		bare := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if want := bare(strings.Join(render.Wrap(s, 1<<20), "")); bare(strings.Join(lines, "")) != want {
			t.Fatalf("the wrapped lines %q do not equal %q", lines, want)
		}
	})
}

// Beside joins columns of lines. Each is as wide as its longest line, without counting colours.
func TestBeside(t *testing.T) {
	loud := func(s string) string { return "<" + s + ">" }
	got := render.Beside([][]render.Styled{{{Text: "日本", Paint: loud}, {Text: "b"}}, {{Text: "c"}}, {{Text: "d"}, {Text: ""}, {Text: "e"}}}, 5)
	want := []string{
		"<日本>  │ c     │ d", // colours take no room
		"b     │       │",
		"      │       │ e",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for n := 1; n < 6; n++ {
		width := render.ColumnWidth(n, 100)
		line := render.Beside(slices.Repeat([][]render.Styled{{{Text: strings.Repeat("x", width)}}}, n), width)[0]
		if have := uniseg.StringWidth(line); have > 100 || have <= 100-n {
			t.Errorf("%d columns have a width of %d, want at most 100", n, have)
		}
	}
}

// A line of a long text is the same as that of a short one, also if the text begins with characters without width.
func TestCutLong(t *testing.T) {
	accents := "e" + strings.Repeat("\u0301", 10_000)
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{strings.Repeat("ab\n", 1<<20), 6, "ab ab…"},
		{strings.Repeat("\u754c", 1<<20), 6, "\u754c\u754c…"},
		{accents + "xyz", 4, accents + "xyz"},
		{accents + "xyzabc", 3, accents + "x…"},
		{strings.Repeat("a", 1<<20), 0, ""},
		{strings.Repeat("a", 1000), 1000, strings.Repeat("a", 1000)},
	} {
		if got := render.Cut(c.text, c.width); got != c.want {
			t.Errorf("%.20q cut to %d columns is %.40q, want %.40q", c.text, c.width, got, c.want)
		}
	}
}

func factOf(e events.Event) projector.Fact { return projector.Decode(events.Record{Event: e}) }

func TestEvent(t *testing.T) {
	note := "n"
	run := events.RunRef{Kind: "panel", ID: "r"}
	entry := events.Entry{Thread: "main", Turn: events.Raw(`"hi"`)}
	for want, p := range map[string]events.Payload{
		"conversation Title":            &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Title: "Title"},
		"conversation, fork of s at @7": &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s", Offset: 7}},
		"title, status":                 &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}, {Name: "status", Value: events.Raw(`"idle"`)}}},
		"main  text: hi":                &events.TurnAppended{Entries: []events.Entry{entry}},
		"main  text: hi  (+1)":          &events.TurnAppended{Entries: []events.Entry{entry, entry}},
		"":                              &events.TurnAppended{ThreadMeta: map[string]events.Raw{"main": events.Raw(`1`)}},
		"a, b (save)":                   &events.ThreadReplaced{Threads: map[string]events.Replacement{"b": {}, "a": {}}, Others: "keep", Reason: "save"},
		"a to 1, b to 0":                &events.ThreadTruncated{Lengths: map[string]int{"b": 0, "a": 1}, Reason: "cut"},
		"main, 2 turns":                 &events.ThreadPinned{Thread: "main", Pins: map[int]bool{0: true, 1: false}},
		"to @3, takes back @5 why":      &events.SessionRewound{To: 3, Undoes: 5, Reason: "why"},
		"panel/r":                       &events.RunCreated{Run: run},
		"panel/r delta":                 &events.RunProgressed{Run: run, Kind: "delta"},
		"panel/r completed":             &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`1`)},
		"rewind c":                      &events.CheckpointSaved{ID: "c", Kind: "rewind"},
		"m USD 0.5":                     &events.CostAccrued{Model: "m", USD: "0.5", Purpose: "run", Source: "reported"},
		"m":                             &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported"},
	} {
		e, err := events.New("urn:test", events.Session("", "s"), p)
		if err != nil {
			t.Fatal(err)
		}
		if got := render.Event(factOf(e), 60); got != want {
			t.Errorf("%s: got %q, want %q", e.Type, got, want)
		}
	}
	annotated, err := events.New("urn:test", events.Session("", "s"), &events.RunAnnotated{Run: run, Note: &note})
	if err != nil || render.Event(factOf(annotated), 60) != "panel/r" {
		t.Errorf("got %q, error %v", render.Event(factOf(annotated), 60), err)
	}
	for want, e := range map[string]events.Event{
		"3 B text/plain": {Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("abc")},
		"":               {Type: events.TypeTurnAppended, Data: []byte("{")},
	} {
		if got := render.Event(factOf(e), 60); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
