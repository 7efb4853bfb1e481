package render

import (
	"math"
	"strings"
)

// Excerpt returns the width of an abbreviated text, such as a turn in a list or the result of a tool. It is at most
// 200, so that lines in a pipe stay short.
func Excerpt(width int) int { return min(width, 200) }

// oneLine returns a text on one line, with spaces for line breaks.
func oneLine(s string) string { return Cut(s, math.MaxInt) }

// minText is the minimal width of text next to a label.
const minText = 7

// Beyond returns the width that remains next to the given number of columns.
func Beyond(taken, width int) int { return max(width-taken, minText) }

// Flow lays out parts in a row with separators. If a part does not fit, it begins a new line. A part that is wider than
// a line wraps. Empty parts are left out.
func Flow(parts []Styled, between string, width int) []string {
	var lines []string
	line, taken := "", 0
	for _, part := range parts {
		if part.Text = oneLine(part.Text); part.Text == "" {
			continue
		}
		room := width - taken - columns(between)
		switch {
		case taken > 0 && columns(part.Text) <= room:
			line, taken = line+between+part.painted(), taken+columns(between+part.Text)
			continue
		case taken > 0:
			lines = append(lines, line)
		}
		rows := Wrap(part.Text, width)
		for _, row := range rows[:len(rows)-1] {
			lines = append(lines, Styled{row, part.Paint}.painted())
		}
		last := Styled{rows[len(rows)-1], part.Paint}
		line, taken = last.painted(), columns(last.Text)
	}
	return append(lines, line)
}

// labelled is the column at which the text next to a label begins.
const labelled = 11

// Field lays out a label, and next to it a text that wraps. paint colours the label unless it is nil.
func Field(label, text string, width int, paint func(string) string) []string {
	var lines []string
	pad := strings.Repeat(" ", max(labelled-columns(label), 1))
	for i, line := range Wrap(text, Beyond(labelled, width)) {
		if i == 0 {
			line = Styled{label + pad, paint}.painted() + line
		} else {
			line = strings.Repeat(" ", labelled) + line
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
