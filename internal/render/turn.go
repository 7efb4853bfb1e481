// Package render shows turns and logs as text, whatever shape the producer's JSON
// has. It decides nothing: what it cannot make out it prints as it is.
package render

import (
	"fmt"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/turns"
	"github.com/tallylog/tally/projector"
)

// Line is one message of a turn: who speaks, and what.
type Line struct {
	Role string
	Text string
}

// Turn returns the messages of a turn. What is not of a known shape is one line.
func Turn(t projector.Turn) []Line {
	if t.Raw == nil {
		return []Line{{"bytes", fmt.Sprintf("%s, not JSON", plain.Bytes(int64(len(t.Bytes))))}}
	}
	read, ok := turns.Read(t.Raw)
	if !ok {
		return []Line{{"json", string(rawjson.AppendCompact(nil, t.Raw))}}
	}
	var lines []Line
	for _, p := range read.Parts {
		lines = append(lines, part(p))
	}
	return lines
}

// part says one part of a turn in a line.
func part(p turns.Part) Line {
	switch p.Kind {
	case turns.Reasoning:
		if p.Text == "" {
			return Line{p.Role, "(thinking, withheld)"}
		}
		return Line{p.Role, "(thinking) " + p.Text}
	case turns.Call:
		return Line{"call", strings.TrimSpace(p.Name + " " + p.Text)}
	case turns.Result:
		text := p.Text
		if p.Error {
			text = "error: " + text
		}
		return Line{"result", strings.TrimSpace(p.Name + " " + text)}
	case turns.Media:
		return Line{p.Role, "(" + media(p) + ")"}
	case turns.Refusal:
		return Line{p.Role, "(refusal) " + p.Text}
	}
	if p.Text == "" {
		return Line{p.Role, "(nothing)"}
	}
	return Line{p.Role, p.Text}
}

// media says what an image or a file is: its name, what it is, its size.
func media(p turns.Part) string {
	var list []string
	for _, word := range []string{p.Name, p.Media} {
		if word != "" {
			list = append(list, word)
		}
	}
	if p.Bytes > 0 {
		list = append(list, plain.Bytes(p.Bytes))
	}
	return strings.Join(list, ", ")
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
