package render

import (
	"math"
	"strings"
)

// Excerpt is the width, of one that there is, for what stands for a longer text where
// that is not shown: a turn in a list, the result of a tool. It is 200 at the most, so
// that a list in a pipe stays one.
func Excerpt(width int) int { return min(width, 200) }

// oneLine returns a text as it is printed on one line.
func oneLine(s string) string { return Cut(s, math.MaxInt) }

// leastText is the narrowest that text beside something is laid out for.
const leastText = 7

// Beyond returns the width that is left beside so many columns.
func Beyond(taken, width int) int { return max(width-taken, leastText) }

// Flow lays out parts one behind the other, with something between them, and goes on with
// a new line where the next one does not fit. A part that is wider than a line wraps, and
// an empty one is left out.
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

// labelled is the column at which the text behind a label begins.
const labelled = 11

// Field lays out a label, painted unless paint is nil, and a text beside it that wraps to a width.
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
