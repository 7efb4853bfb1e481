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

// labelled is the column at which the text behind a label begins.
const labelled = 11

// Field lays out a label, painted, and a text beside it that wraps to a width.
func Field(label, text string, width int, paint func(string) string) []string {
	var lines []string
	pad := strings.Repeat(" ", max(labelled-columns(label), 1))
	for i, line := range Wrap(text, max(width-labelled, 20)) {
		if i == 0 {
			line = paint(label+pad) + line
		} else {
			line = strings.Repeat(" ", labelled) + line
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
