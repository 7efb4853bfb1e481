package page

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// hostile returns a page with a text in each place that holds text from outside of tally.
func hostile(text string) Page {
	q := string(quoted(strings.ToValidUTF8(text, "\ufffd")))
	ref := &events.RunRef{Kind: text, ID: text}
	turn := func(at events.Offset, raw string) projector.Turn {
		return projector.Turn{Offset: at, Raw: events.Raw(strings.ReplaceAll(raw, "TEXT", q)), Timestamp: events.Timestamp(text), Run: ref, Pinned: true}
	}
	said := []projector.Turn{
		turn(1, `TEXT`),
		turn(2, `{"role":TEXT,"content":TEXT}`),
		turn(3, `{"role":TEXT,"content":[{"type":"text","text":TEXT},{"type":"thinking","thinking":TEXT},{"type":"tool_use","name":TEXT,"id":TEXT,"input":{"k":TEXT}}]}`),
		turn(4, `{"role":TEXT,"content":[{"type":"tool_result","toolName":TEXT,"tool_use_id":TEXT,"content":TEXT},{"type":"image","source":TEXT},{"type":TEXT}]}`),
		turn(5, `{"User":{"blocks":[{"ToolResult":{"id":TEXT,"content":{"is_error":true,"blocks":[{"type":"text","text":TEXT}]}}},{"ToolCall":{"id":TEXT,"name":TEXT,"args":TEXT}}]}}`),
		turn(6, `{"a":{TEXT:TEXT}}`),
		{Offset: 7, Bytes: []byte(text)},
	}
	s := projector.NewSession(events.Session(events.DefaultNamespace, text))
	s.Threads["main"], s.Threads[text] = &projector.Thread{Turns: said}, &projector.Thread{Turns: said[:1]}
	s.Ledger.Kind, s.Ledger.CreatedAt = text, events.Timestamp(text)
	s.Ledger.Fork, s.Ledger.Parent = &events.Fork{Session: text, Offset: 3}, &events.Lineage{Session: text, Run: text, Checkpoint: text, ToolCall: text}
	s.Ledger.Fields = events.Fields{{Name: "title", Value: events.Raw(q)}, {Name: "status", Value: events.Raw(q)}, {Name: "models", Value: events.Raw("[" + q + "]")},
		{Name: "trajectory", Value: events.Raw(`{"goal":` + q + `,"persona":{"name":` + q + `,"description":` + q + `}}`)}}
	s.Ledger.Runs = []*projector.Run{{Kind: text, ID: text, CreatedAt: events.Timestamp(text), Models: []string{text}, State: text, Note: text, Selected: text, Rating: text, AppliedFiles: []string{text}, Tags: []string{text}}}
	s.Ledger.Costs = []projector.Cost{{Model: text, USD: "1", Source: text}}
	s.Ledger.Rewinds = []projector.Rewind{{Offset: 8, To: 1, Reason: text}}
	return Page{Session: s, All: true, Gone: []projector.TurnAt{{Thread: text, Number: 3, Turn: turn(9, `{"role":TEXT,"content":TEXT}`)}}}
}

// alike returns a harmless text that needs the same quoting as another, in a code span or outside.
func alike(text string) string {
	text = inline(text)
	for _, s := range []string{"x", "1"} {
		if isWords(s) == isWords(text) && isWords("run "+s) == isWords("run "+text) {
			return s
		}
	}
	return "."
}

// parsed returns the page as a browser parses it.
func parsed(t *testing.T, p Page, ext string) *html.Node {
	t.Helper()
	text := written(t, p, ext)
	if ext == ".md" {
		if longestRun(text) > maxRun {
			t.Fatal("a fence is longer than Markdown parsers accept")
		}
		var b bytes.Buffer
		if err := markdown.Convert([]byte(text), &b); err != nil {
			t.Fatal(err)
		}
		text = b.String()
	}
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// skeleton lists the elements of a page with the names of their attributes, without text.
func skeleton(n *html.Node) string {
	var b strings.Builder
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.TextNode {
			return
		}
		if n.Type == html.ElementNode {
			b.WriteString("\n" + n.Data)
			for _, a := range n.Attr {
				b.WriteString(" " + a.Key)
			}
		} else {
			b.WriteString("\n!" + n.Data)
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
		b.WriteString("\n/")
	}
	walk(n)
	return b.String()
}

// blocks returns the texts in the blocks of a page.
func blocks(root *html.Node) []string {
	var list []string
	for n := range root.Descendants() {
		if n.Data == "pre" && n.Type == html.ElementNode {
			list = append(list, textOf(n))
		}
	}
	return list
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// FuzzPage puts any text in all places. The page has the same elements, attributes and classes as a harmless page, and
// its blocks contain the whole text.
func FuzzPage(f *testing.F) {
	for _, text := range []string{
		"</pre></details></article><script>alert(1)</script>", "\"' onload=alert(1) x='", "{{.Policy}} `}} <!-- ", "]]> --> </title></style>",
		"```\n\n# heading\n\n[x](javascript:alert(1)) <b>", "~~~\n`` ` ``` ````\n> q\n- l\n| a | b |\n|---|---|\n", strings.Repeat("`", 300) + "\n" + strings.Repeat("`", 52), "`", "` `", " ` ", "x\n</details>\n\n<img src=x>",
		"\n\n\nfirst lines", "http://www.example.com www.example.com a@example.com", "    four\n\ttab\n", "a\r\n\r\n<div>\u2028", "&lt;&#60;&amp;", "\x00\x1b]0;x\a\x9b\xff", "Words and 1 number", "1", "1.", "---", "*x*", "__", "a ", " a", "\u202e\u200b\ufe0f",
	} {
		f.Add(text)
	}
	harmless := make(map[string]string) // skeletons of harmless pages
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" || text == "main" || len(text) > 2000 {
			t.Skip()
		}
		p := hostile(text)
		for _, ext := range []string{".md", ".html"} {
			root := parsed(t, p, ext)
			as := ext + alike(text)
			if harmless[as] == "" {
				harmless[as] = skeleton(parsed(t, hostile(alike(text)), ext))
			}
			if skeleton(root) != harmless[as] {
				t.Fatalf("the text %q changes the elements of the page %s:\n%s", text, ext, written(t, p, ext))
			}
			mustSay(t, p, root, ext)
			for n := range root.Descendants() {
				if class := attr(n, "class"); ext == ".html" && !slices.Contains([]string{"", "at", "mark", "name", "id", "gone", "rewind", "user", "assistant", "system", "tool", "other", "thought", "error"}, class) {
					t.Fatalf("the text %q created the class %q", text, class)
				}
			}
		}
	})
}

// FuzzTurn uses any JSON as a turn. Each of its parts is a block with the whole part.
func FuzzTurn(f *testing.F) {
	for _, p := range []string{`"x"`, `{"role":"user","content":"</pre>"}`, `{"stepIndex":0,"input":{"role":"user","content":"a"},"output":[{"role":"assistant","content":[{"type":"thinking","thinking":""}]}]}`,
		`{"role":"tool","content":[{"type":"tool-result","output":{"type":"json","value":{"a":["` + "```" + `"]}}}]}`, `{"User":{"blocks":[]}}`, `{"role":"user","content":[]}`, `[1,"\n</details>\n\n<p>"]`} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if rawjson.Check(raw) != nil || len(raw) > 10_000 {
			t.Skip()
		}
		s := projector.NewSession(events.Session(events.DefaultNamespace, "s"))
		s.Threads["main"] = &projector.Thread{Turns: []projector.Turn{{Offset: 1, Raw: raw}}}
		p := Page{Session: s}
		for _, ext := range []string{".md", ".html"} {
			mustSay(t, p, parsed(t, p, ext), ext)
		}
	})
}

// mustSay checks that each part of each turn is a block of its own, with nothing added and nothing lost.
func mustSay(t *testing.T, p Page, root *html.Node, ext string) {
	t.Helper()
	var want []string
	folded := 0
	all := p.Threads()
	for _, i := range p.Items() {
		if i.Turn != nil {
			all = append(all, thread{Turns: []turn{*i.Turn}})
		}
	}
	for _, th := range all {
		for _, next := range th.Turns {
			for _, part := range next.Said().Parts {
				if part.Fold {
					folded++
				}
				if ext == ".md" {
					part.Text = tame(part.Text) + "\n"
				}
				want = append(want, part.Text)
			}
		}
	}
	if got := blocks(root); !slices.Equal(got, want) {
		t.Fatalf("the blocks of the page %s are\n%q\nwant\n%q", ext, got, want)
	}
	details := 0
	for n := range root.Descendants() {
		if n.Data == "details" && n.Type == html.ElementNode {
			details++
		}
	}
	if details != folded {
		t.Fatalf("the page %s folds %d parts, want %d", ext, details, folded)
	}
}
