package page

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"
)

// WriteMarkdown writes the page as Markdown. Text from outside is in fenced blocks and code spans, with fences longer
// than any in the text. Where HTML folds a block, names are escaped for HTML.
func (p Page) WriteMarkdown(w io.Writer) error {
	out := bufio.NewWriter(w) // Flush returns the first error
	fmt.Fprintf(out, "# %s\n\n", span(p.Title()))
	writeFacts(out, p.Facts())
	for _, th := range p.Threads() {
		fmt.Fprintf(out, "\n## Thread %s, %s\n", span(th.Name), th.Count)
		for _, t := range th.Turns {
			writeTurn(out, t)
		}
	}
	if runs := p.Runs(); len(runs) > 0 {
		fmt.Fprintf(out, "\n## Runs\n")
		for _, r := range runs {
			fmt.Fprintf(out, "\n### %s\n\n", span(r.Ref))
			writeFacts(out, r.Facts)
		}
	}
	if items := p.Items(); len(items) > 0 {
		fmt.Fprintf(out, "\n## Not in effect\n")
		for _, i := range items {
			writeItem(out, i)
		}
	}
	return out.Flush()
}

func writeFacts(out *bufio.Writer, list []fact) {
	for _, f := range list {
		var values []string
		for _, v := range f.Values {
			values = append(values, span(v))
		}
		fmt.Fprintf(out, "- %s: %s\n", f.Label, strings.Join(values, ", "))
	}
}

func writeItem(out *bufio.Writer, i item) {
	if i.Turn != nil {
		writeTurn(out, *i.Turn)
		return
	}
	fmt.Fprintf(out, "\n### %s %s\n\n", i.Rewind.What, code(i.Rewind.Offset))
	writeFacts(out, i.Rewind.Facts)
}

func writeTurn(out *bufio.Writer, t turn) {
	says := t.Said()
	head := []string{t.Thread, t.Number, t.Offset, t.Time}
	head = append(append(head, t.Marks...), says.Model)
	fmt.Fprint(out, "\n###")
	for _, word := range head {
		if word != "" {
			fmt.Fprint(out, " "+span(word))
		}
	}
	fmt.Fprint(out, "\n")
	for _, p := range says.Parts {
		writePart(out, p)
	}
}

func writePart(out *bufio.Writer, p part) {
	before, after := what(p), ""
	if p.Fold {
		before, after = "<details><summary>"+before+"</summary>", "\n</details>\n"
	}
	info := "text"
	if p.JSON {
		info = "json"
	}
	text := tame(p.Text)
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	fmt.Fprintf(out, "\n%s\n\n%s%s\n%s\n%s\n%s", before, fence, info, text, fence, after)
}

// what returns the description of a part: as HTML if the part is folded.
func what(p part) string {
	spell, text := span, "**"+span(p.Label)+"**"
	if p.Fold {
		spell = func(s string) string { return "<code>" + html.EscapeString(tame(s)) + "</code>" }
		text = html.EscapeString(tame(p.Label))
	}
	for _, word := range []string{p.Name, p.ID} {
		if word != "" {
			text += " " + spell(word)
		}
	}
	return text
}

// span returns a line of text as it is if it has no special meaning in Markdown, else as a code span.
func span(s string) string {
	if isWords(s) {
		return s
	}
	return code(s)
}

// isWords reports whether a text consists of letters, digits and single spaces, and begins with a letter.
func isWords(s string) bool {
	for i := 0; i < len(s); i++ {
		letter := 'a' <= s[i] && s[i] <= 'z' || 'A' <= s[i] && s[i] <= 'Z'
		digit := i > 0 && '0' <= s[i] && s[i] <= '9'
		space := s[i] == ' ' && 0 < i && i < len(s)-1 && s[i-1] != ' '
		if !letter && !digit && !space {
			return false
		}
	}
	return s != ""
}

// code returns a line of text as a code span.
func code(s string) string {
	s = tame(s)
	fence := strings.Repeat("`", longestRun(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") || strings.HasPrefix(s, " ") && strings.HasSuffix(s, " ") {
		s = " " + s + " "
	}
	return fence + s + fence
}

// maxRun is the longest run of backticks that is written. Parsers of Markdown count fences only up to 80 or 255.
const maxRun = 50

// tame replaces runs of backticks for which no fence would be long enough.
func tame(s string) string {
	run := strings.Repeat("`", maxRun)
	return strings.ReplaceAll(s, run, fmt.Sprintf("[U+0060, %d times]", maxRun))
}

// longestRun returns the length of the longest run of backticks.
func longestRun(s string) int {
	longest := 0
	for rest := s; ; {
		at := strings.IndexByte(rest, '`')
		if at < 0 {
			return longest
		}
		rest = rest[at:]
		after := strings.TrimLeft(rest, "`")
		longest = max(longest, len(rest)-len(after))
		rest = after
	}
}
