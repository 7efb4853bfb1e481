// Package render shows turns and logs as text, whatever shape the producer's JSON
// has. It decides nothing: what it cannot make out it prints as it is.
package render

import (
	"fmt"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Line is one message of a turn: who speaks, and what.
type Line struct {
	Role string
	Text string
}

// Turn returns the messages of a turn. Steps with input and output, messages with
// role and content, and plain strings are known; other JSON is one line.
func Turn(t projector.Turn) []Line {
	if t.Raw == nil {
		return []Line{{"bytes", fmt.Sprintf("%s, not JSON", plain.Bytes(int64(len(t.Bytes))))}}
	}
	if lines, ok := step(t.Raw); ok {
		return lines
	}
	if lines, ok := message(t.Raw); ok {
		return lines
	}
	if text, err := rawjson.String(t.Raw); err == nil {
		return []Line{{"text", text}}
	}
	return []Line{{"json", string(rawjson.AppendCompact(nil, t.Raw))}}
}

// step reads {input: message, output: [message...]}.
func step(raw []byte) ([]Line, bool) {
	members, err := rawjson.Object(raw)
	if err != nil {
		return nil, false
	}
	input, hasInput := members.Get("input")
	output, hasOutput := members.Get("output")
	if !hasInput || !hasOutput {
		return nil, false
	}
	lines, ok := message(input)
	outputs, err := rawjson.Array(output)
	if !ok || err != nil {
		return nil, false
	}
	for _, m := range outputs {
		more, ok := message(m)
		if !ok {
			return nil, false
		}
		lines = append(lines, more...)
	}
	return lines, true
}

// message reads {role, content}, also with the names that an older Go encoder
// wrote, and {User: {blocks}} or {Assistant: {blocks}}.
func message(raw []byte) ([]Line, bool) {
	members, err := rawjson.Object(raw)
	if err != nil {
		return nil, false
	}
	if lines, ok := variant(members); ok {
		return lines, true
	}
	role := text(members, "role", "Role")
	content, ok := members.Get("content")
	if !ok {
		content, ok = members.Get("Content")
	}
	if role == "" || !ok {
		return nil, false
	}
	if s, err := rawjson.String(content); err == nil {
		return []Line{{role, s}}, true
	}
	parts, err := rawjson.Array(content)
	if err != nil {
		return []Line{{role, string(rawjson.AppendCompact(nil, content))}}, true
	}
	var lines []Line
	for _, p := range parts {
		lines = append(lines, part(role, p))
	}
	return lines, true
}

// part reads one part of a message's content.
func part(role string, raw []byte) Line {
	members, err := rawjson.Object(raw)
	if err != nil {
		return Line{role, string(rawjson.AppendCompact(nil, raw))}
	}
	switch kind := members.Text("type"); kind {
	case "text":
		return Line{role, members.Text("text")}
	case "thinking", "reasoning":
		return Line{role, "(thinking) " + text(members, "thinking", "text", "reasoning")}
	case "tool-call", "tool_use", "toolCallPart":
		return Line{"call", text(members, "toolName", "name") + " " + compact(members, "input", "args")}
	case "tool-result", "tool_result", "toolResultPart":
		return Line{"result", strings.TrimSpace(members.Text("toolName") + " " + result(members))}
	case "image", "file", "document":
		return Line{role, "(" + kind + ", " + plain.Bytes(int64(len(raw))) + ")"}
	}
	return Line{role, string(rawjson.AppendCompact(nil, raw))}
}

// result returns what a tool answered, without the wrapping {type, value}.
func result(members rawjson.Members) string {
	if output, ok := members.Get("output"); ok {
		if wrapped, err := rawjson.Object(output); err == nil && len(wrapped) == 2 && wrapped.Text("type") != "" {
			if value := compact(wrapped, "value"); value != "" {
				return value
			}
		}
	}
	return compact(members, "output", "content", "result", "contents")
}

func text(m rawjson.Members, names ...string) string {
	for _, name := range names {
		if raw, ok := m.Get(name); ok {
			if s, err := rawjson.String(raw); err == nil {
				return s
			}
		}
	}
	return ""
}

func compact(m rawjson.Members, names ...string) string {
	for _, name := range names {
		if raw, ok := m.Get(name); ok {
			return string(rawjson.AppendCompact(nil, raw))
		}
	}
	return ""
}

// Wrap breaks text into lines of at most width columns, on spaces where it can.
func Wrap(s string, width int) []string {
	width = max(width, 4) // the widest character fits
	var lines []string
	for _, paragraph := range strings.Split(strings.ReplaceAll(plain.Printable(s), "\t", "    "), "\n") {
		line := ""
		flush := func() { lines, line = append(lines, strings.TrimRight(line, " ")), "" }
		for _, word := range strings.SplitAfter(paragraph, " ") {
			if line != "" && columns(line)+columns(strings.TrimRight(word, " ")) > width {
				flush()
			}
			for columns(strings.TrimRight(word, " ")) > width {
				line = head(word, width)
				word = word[len(line):]
				flush()
			}
			line += word
		}
		flush()
	}
	return lines
}

// Cut returns a text on one line, at most width columns of it.
func Cut(s string, width int) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, plain.Printable(s))
	switch {
	case columns(s) <= width:
		return s
	case width < 1:
		return ""
	}
	return head(s, width-1) + "…"
}

// columns is the width of a text on a terminal.
func columns(s string) int { return uniseg.StringWidth(s) }

// head returns the beginning of a text that takes at most width columns.
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

// Summary is a turn on one line.
func Summary(t projector.Turn, width int) string {
	lines := Turn(t)
	if len(lines) == 0 {
		return Cut("(empty)", width)
	}
	more := ""
	if len(lines) > 1 {
		more = fmt.Sprintf(" (+%d)", len(lines)-1)
	}
	if len(more) > width {
		more = ""
	}
	return Cut(lines[0].Role+": "+lines[0].Text, width-len(more)) + more
}
