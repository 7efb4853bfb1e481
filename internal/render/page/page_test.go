package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// loaded returns the page of a session with these records, from @1 on.
func loaded(t testing.TB, id string, payloads ...events.Payload) Page {
	t.Helper()
	sub := events.Session(events.DefaultNamespace, id)
	var records testkit.Records
	for i, p := range payloads {
		e, err := events.New("urn:test", sub, p)
		if err != nil {
			t.Fatalf("%T: %v", p, err)
		}
		e.ID = string(rune('a' + i))
		records = append(records, events.Record{Offset: events.Offset(i + 1), Event: e})
	}
	loader := &projector.Loader{Source: records}
	s, err := loader.Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := loader.Gone(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return Page{Session: s, All: true, Gone: gone}
}

// says returns an event with one turn.
func says(thread, at, turn string) *events.TurnAppended {
	return &events.TurnAppended{Entries: []events.Entry{{Thread: thread, Turn: events.Raw(turn), Timestamp: events.Timestamp(at)}}}
}

func quoted(s string) events.Raw { return rawjson.AppendString(nil, s) }

// pages are typical sessions.
func pages(t *testing.T) map[string]Page {
	panelRun, eval := events.RunRef{Kind: "panel", ID: "run_1"}, events.RunRef{Kind: "tally", ID: "run-7"}
	return map[string]Page{
		"conversation": loaded(t, "support/refund-17",
			&events.SessionCreated{Kind: "conversation", CreatedAt: "2026-03-01T10:00:00+01:00", Title: "A refund for order 17 <urgent>", Parent: &events.Lineage{Session: "planner", Offset: 1, ToolCall: "c9"}},
			says("main", "2026-03-01T10:00:01.5+01:00", `{"role":"user","content":"Hello,\n\nwhere is **order 17**?\n\n    <b>thanks</b> & bye"}`),
			&events.TurnAppended{Entries: []events.Entry{
				{Thread: "main", Turn: events.Raw(`{"role":"assistant","content":[{"type":"thinking","thinking":"Look it up first."},{"type":"text","text":"` + "```sql\\nselect 1\\n```" + `\nIt is on its way."}]}`), Pinned: true},
				{Thread: "notes", Turn: events.Raw(`"a string alone"`)}}},
			says("main", "", `{"role":"user","content":"Then take it back."}`),
			&events.SessionRewound{To: 3, Reason: "wrong\nquestion"},
			says("main", "", `{"role":"user","content":"Then thanks."}`),
			&events.CostAccrued{Model: "sonnet", USD: "0.0125", Purpose: "run", Source: "reported", Tokens: &events.Tokens{Input: 1200, Output: 340, Reasoning: 20, CacheRead: 5}},
			&events.CostAccrued{Model: "haiku", USD: "0.5", Purpose: "judge", Source: "computed"},
			&events.RunFinished{Run: eval, Outcome: "completed", Result: events.Raw(`{}`), FinishedAt: "2026-03-01T10:05:00Z"},
		),
		"panel": loaded(t, "ses_1",
			&events.SessionCreated{Kind: events.KindPanel, CreatedAt: "2026-03-01T10:00:00Z", Models: []string{"gpt-5.1", "日本語/モデル"}},
			&events.TurnAppended{Entries: []events.Entry{
				{Thread: "gpt-5.1", Turn: events.Raw(`{"role":"user","content":"Which?"}`), Run: &panelRun}, {Thread: "gpt-5.1", Turn: events.Raw(`{"role":"assistant","content":"This."}`), Run: &panelRun},
				{Thread: "日本語/モデル", Turn: events.Raw(`{"role":"user","content":"Which?"}`), Run: &panelRun}, {Thread: "日本語/モデル", Turn: events.Raw(`{"role":"assistant","content":"👩\u200d👩\u200d👧 1️⃣ می\u200cخواهم"}`), Run: &panelRun}}},
			&events.RunCreated{Run: panelRun, Models: []string{"gpt-5.1", "日本語/モデル"}, CreatedAt: "2026-03-01T10:00:10Z"},
			&events.RunFinished{Run: panelRun, Outcome: "stopped:budget", Result: events.Raw(`{}`)},
		),
		"tools": loaded(t, "agent",
			says("main", "", `{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c1","name":"read_file","input":{"path":"a.go","lines":[1,2.0]}}]}`),
			says("main", "", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"package a\n\n`+"````"+`\n</pre></details><script>alert(1)</script>"}]}`),
			says("main", "", `{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+strings.Repeat("iVBORw0KGgoA", 40)+`"}},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},{"type":"unheard-of","x":1}]}`),
			says("main", "", `{"Assistant":{"blocks":[{"RedactedReasoning":{}}]}}`),
			says("main", "", `{"User":{"blocks":[{"ToolResult":{"id":"c2","content":{"is_error":true,"blocks":[{"type":"text","text":"no such file"}]}}}]}}`),
			says("main", "", `{"of":"no known shape"}`),
			&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Bytes: []byte("\x00\x01\x02")}}},
		),
	}
}

// written returns the page in a format.
func written(t testing.TB, p Page, ext string) string {
	t.Helper()
	var b bytes.Buffer
	write := p.WriteHTML
	if ext == ".md" {
		write = p.WriteMarkdown
	}
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for name, p := range pages(t) {
		for _, ext := range []string{".md", ".html"} {
			file, got := filepath.Join("testdata", name+ext), written(t, p, ext)
			if ext == ".html" {
				got = unstyled(t, got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s, want -, got +:\n%s", file, diff)
			}
		}
	}
}

// unstyled returns a page without its style sheet. The golden files do not contain style.css, but the policy in each of
// them has its hash.
func unstyled(t *testing.T, page string) string {
	t.Helper()
	before, after, found := strings.Cut(page, "<style>"+style+"</style>")
	if !found {
		t.Fatalf("the page does not contain style.css byte for byte:\n%s", page)
	}
	return before + "<style></style>" + after
}

// A page shows turns that are not in effect only with All.
func TestNotInEffect(t *testing.T) {
	p := pages(t)["conversation"]
	for _, ext := range []string{".md", ".html"} {
		p.All = true
		if all := written(t, p, ext); !strings.Contains(all, "Then take it back.") || !strings.Contains(all, "wrong␊question") {
			t.Errorf("%s: the page lacks rewound turns or the reason of the rewind", ext)
		}
		p.All = false
		if now := written(t, p, ext); strings.Contains(now, "Then take it back.") || strings.Contains(now, "wrong") || !strings.Contains(now, "Then thanks.") {
			t.Errorf("%s: the page has rewound turns, or lacks turns in effect", ext)
		}
	}
}

// The policy allows the style of the page, and nothing from outside the page.
func TestPolicy(t *testing.T) {
	root, err := html.Parse(strings.NewReader(written(t, pages(t)["tools"], ".html")))
	if err != nil {
		t.Fatal(err)
	}
	var policy, style string
	for n := range root.Descendants() {
		switch {
		case n.Data == "style" && n.Type == html.ElementNode:
			style = n.FirstChild.Data
		case n.Data == "meta" && attr(n, "http-equiv") == "Content-Security-Policy":
			policy = attr(n, "content")
		}
		for _, a := range n.Attr {
			if a.Key == "src" || a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "href" && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	sum := sha256.Sum256([]byte(style))
	if want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"; policy != want {
		t.Errorf("the policy is %q, want %q", policy, want)
	}
	if strings.Contains(style, "url(") || strings.Contains(style, "@import") {
		t.Error("the style refers to something outside the page")
	}
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// Every link leads to one anchor, and names of anchors are unique, also if names of threads look like anchors.
func TestAnchors(t *testing.T) {
	var payloads []events.Payload
	for range 4 {
		for _, name := range []string{"main", "main-1", "@1", "runs", "gone", "thread:main", "thread", "a b", "a.20b", "é", "\xff", "thread\xff", "FF-3"} {
			turn := says("main", "", `"x"`)
			turn.Entries[0].Thread = strings.ToValidUTF8(name, "?")
			payloads = append(payloads, turn)
		}
	}
	p := loaded(t, "s", payloads...)
	p.Session.Threads["\xff"], p.Session.Threads["thread\xff"] = p.Session.Threads["main"], p.Session.Threads["runs"] // no event can create such names
	root, err := html.Parse(strings.NewReader(written(t, p, ".html")))
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for n := range root.Descendants() {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("two anchors have the name %q", id)
			}
			ids[id] = true
		}
	}
	for _, id := range []string{"main-1", "main-1-2", "@3", "=401-1"} {
		if want := strings.ReplaceAll(id, "=", "."); !ids[want] {
			t.Errorf("no anchor has the name %q", want)
		}
	}
	for n := range root.Descendants() {
		if to := attr(n, "href"); to != "" && !ids[strings.ReplaceAll(strings.ReplaceAll(to[1:], "%40", "@"), "%3a", ":")] {
			t.Errorf("the link %q has no anchor", to)
		}
	}
}
