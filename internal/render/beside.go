package render

import "strings"

// Styled is a line of text with a style.
type Styled struct {
	Text  string
	Paint func(string) string // colours the text; nil leaves it as it is
}

func (s Styled) painted() string {
	if s.Paint == nil {
		return s.Text
	}
	return s.Paint(s.Text)
}

// between separates adjacent columns.
const between = " │ "

// ColumnWidth returns the width of each of n adjacent columns in a total width.
func ColumnWidth(n, width int) int { return (width - (n-1)*columns(between)) / n }

// Beside puts columns of lines side by side. width is that of one column, and no line may be wider.
func Beside(list [][]Styled, width int) []string {
	height := 0
	for _, column := range list {
		height = max(height, len(column))
	}
	lines := make([]string, height)
	for i := range lines {
		var b strings.Builder
		for c, column := range list {
			if c > 0 {
				b.WriteString(between)
			}
			var cell Styled
			if i < len(column) {
				cell = column[i]
			}
			b.WriteString(cell.painted())
			if c < len(list)-1 {
				b.WriteString(strings.Repeat(" ", width-columns(cell.Text)))
			}
		}
		lines[i] = strings.TrimRight(b.String(), " ")
	}
	return lines
}
