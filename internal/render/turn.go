// Package render formats turns and logs as text, whatever JSON the producer used. Data of unknown shape are printed as
// they are.
package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// Line is a message of a turn with its speaker.
type Line struct {
	Role, Text string
	Thought    bool // the model thought the text, and did not say it
}

// Calls remembers tool calls, so that a result with only the id of its call is shown with the name of the tool. It is
// for the turns of one thread, in order. The zero value has no calls.
type Calls struct{ tools map[string]string }

// Turn returns the messages of a turn. Data of unknown shape are one line.
func Turn(t projector.Turn) []Line { return new(Calls).Turn(t) }

// Turn returns the messages of the next turn of the thread, like the function Turn.
func (c *Calls) Turn(t projector.Turn) []Line {
	if t.Erased != "" {
		return []Line{{Role: "erased", Text: "receipt " + t.Erased}}
	}
	read, ok := Read(t)
	switch {
	case !ok && t.Raw == nil && isText(t.Bytes):
		return []Line{{Role: "text", Text: string(t.Bytes)}}
	case !ok && t.Raw == nil:
		return []Line{{Role: "bytes", Text: plain.Bytes(int64(len(t.Bytes))) + ", not JSON"}}
	case !ok:
		return []Line{{Role: "json", Text: string(rawjson.AppendCompact(nil, t.Raw))}}
	}
	c.name(read.Parts)
	var lines []Line
	for _, p := range read.Parts {
		lines = append(lines, part(p))
	}
	return lines
}

// isText reports whether bytes are text.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// Read returns the parts of a turn. It returns false if the shape is unknown.
func Read(t projector.Turn) (shapes.Turn, bool) {
	if t.Raw == nil {
		return message.ReadGlued(t.Bytes)
	}
	return message.Read(t.Raw)
}

// name remembers the calls in a turn, and sets the names of results.
func (c *Calls) name(parts []shapes.Part) {
	for i, p := range parts {
		switch {
		case p.ID == "":
		case p.Kind == shapes.Call:
			if c.tools == nil {
				c.tools = make(map[string]string)
			}
			c.tools[p.ID] = p.Name
		case p.Kind == shapes.Result && p.Name == "":
			parts[i].Name = c.tools[p.ID]
		}
	}
}

// part returns the line of a part.
func part(p shapes.Part) Line {
	return Line{Role: speaker(p), Text: spoken(p), Thought: p.Kind == shapes.Reasoning}
}

// speaker returns the role of a part, or call or result for tools.
func speaker(p shapes.Part) string {
	switch p.Kind {
	case shapes.Call:
		return "call"
	case shapes.Result:
		return "result"
	}
	return p.Role
}

// spoken returns the text of a part, with a label if the part is not plain speech.
func spoken(p shapes.Part) string {
	switch p.Kind {
	case shapes.Reasoning:
		if p.Text == "" {
			return "(thinking, withheld)"
		}
		return "(thinking) " + p.Text
	case shapes.Call:
		return strings.TrimSpace(p.Name + " " + p.Text)
	case shapes.Result:
		if p.Error {
			p.Text = "error: " + p.Text
		}
		return strings.TrimSpace(p.Name + " " + p.Text)
	case shapes.Media:
		return "(" + Media(p) + ")"
	case shapes.Refusal:
		return strings.TrimSpace("(refusal) " + p.Text)
	}
	switch {
	case p.Text == "":
		return "(nothing)"
	case p.Name != "":
		return p.Name + ": " + p.Text
	}
	return p.Text
}

// Media describes an image or a file: its name, type, location and size.
func Media(p shapes.Part) string {
	var list []string
	for _, word := range []string{p.Name, p.Media, p.Text} {
		if word != "" {
			list = append(list, word)
		}
	}
	if p.Bytes > 0 {
		list = append(list, plain.Bytes(p.Bytes))
	}
	return strings.Join(list, ", ")
}

// Wrap breaks text into lines of at most width columns, at spaces where possible.
func Wrap(s string, width int) []string {
	width = max(width, 4) // enough for the widest character
	var lines []string
	for _, paragraph := range strings.Split(strings.ReplaceAll(plain.Printable(s), "\t", "    "), "\n") {
		if columns(paragraph) <= width { // fast path: the loop below takes quadratic time in the length of the line
			lines = append(lines, strings.TrimRight(paragraph, " "))
			continue
		}
		line := ""
		flush := func() { lines, line = append(lines, strings.TrimRight(line, " ")), "" }
		for _, word := range strings.SplitAfter(paragraph, " ") {
			bare := strings.TrimRight(word, " ")
			if line != "" && columns(line)+columns(bare) > width {
				flush()
			}
			rows := split(bare, width)
			for _, line = range rows[:len(rows)-1] {
				flush()
			}
			line += rows[len(rows)-1] + word[len(bare):]
		}
		flush()
	}
	return lines
}

// split breaks a word into rows of at most width columns, in one pass. A grapheme cluster that is wider than a row is
// broken between its runes.
func split(word string, width int) []string {
	var rows []string
	start, end, taken := 0, 0, 0
	add := func(size, w int) {
		if taken+w > width {
			rows = append(rows, word[start:end])
			start, taken = end, 0
		}
		end, taken = end+size, taken+w
	}
	for rest, state := word, -1; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if w <= width {
			add(len(cluster), w)
			continue
		}
		for _, r := range cluster {
			add(utf8.RuneLen(r), max(2, columns(string(r)))) // no rune adds more columns within a cluster
		}
	}
	return append(rows, word[start:end])
}

// Cut returns a text on one line, cut to at most width columns.
func Cut(s string, width int) string {
	if start := beginning(s, width); len(start) < len(s) {
		if start = spaced(start); columns(start) > width+widest {
			return cut(start, width)
		}
	}
	return cut(spaced(s), width)
}

// widest exceeds the columns of the last character of a text, which beginning may cut off.
const widest = 8

// beginning returns a prefix of a text that fills the width for most texts. Measuring megabytes of text takes seconds.
func beginning(s string, width int) string {
	const bytesPerColumn = 16
	n := min(max(width, 0), len(s)) + widest
	if n *= bytesPerColumn; n >= len(s) {
		return s
	}
	return projector.Cut(s, n)
}

// spaced returns a text with spaces for line breaks and tabs.
func spaced(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, plain.Printable(s))
}

func cut(s string, width int) string {
	switch {
	case columns(s) <= width:
		return s
	case width < 1:
		return ""
	}
	return head(s, width-1) + "…"
}

// columns returns the width of a text on a terminal.
func columns(s string) int { return uniseg.StringWidth(s) }

// head returns the longest prefix of a text with at most width columns.
func head(s string, width int) string {
	n := 0
	for rest, state := s, -1; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if width -= w; width < 0 {
			break
		}
		n += len(cluster)
	}
	return s[:n]
}

// Summary returns a turn on one line: its first message that is not a thought, and the number of further messages.
func Summary(t projector.Turn, width int) string {
	lines := Turn(t)
	if len(lines) == 0 {
		return Cut("(empty)", width)
	}
	first := max(0, slices.IndexFunc(lines, func(l Line) bool { return !l.Thought }))
	more := ""
	if len(lines) > 1 {
		more = fmt.Sprintf(" (+%d)", len(lines)-1)
	}
	if len(more) > width {
		more = ""
	}
	return Cut(lines[first].Role+": "+lines[first].Text, width-len(more)) + more
}
