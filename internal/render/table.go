package render

import (
	"slices"
	"strings"
)

// Table lays out rows in columns, at most as wide as asked for as far as the
// columns that may be cut allow.
type Table struct {
	Head  []string
	Rows  [][]string
	Right []int // columns that stand at the right, such as numbers
	Cut   []int // columns that may be cut, the one that gives way first first

	// Paint colours a cell that has its width already. Row -1 is the head. nil
	// paints nothing.
	Paint func(row, column int, padded string) string
}

const (
	gap         = 2
	leastColumn = 8 // columns are not cut below it
)

// Lines returns the table's lines.
func (t Table) Lines(width int) []string {
	widths := t.widths(width)
	lines := []string{t.line(-1, t.Head, widths)}
	for i, row := range t.Rows {
		lines = append(lines, t.line(i, row, widths))
	}
	return lines
}

func (t Table) widths(width int) []int {
	widths := make([]int, len(t.Head))
	total := gap * (len(t.Head) - 1)
	for c := range widths {
		widths[c] = columns(t.Head[c])
		for _, row := range t.Rows {
			widths[c] = max(widths[c], columns(row[c]))
		}
		total += widths[c]
	}
	for _, c := range t.Cut {
		least := max(leastColumn, columns(t.Head[c]))
		if over := min(total-width, widths[c]-least); over > 0 {
			widths[c] -= over
			total -= over
		}
	}
	return widths
}

func (t Table) line(row int, cells []string, widths []int) string {
	var b strings.Builder
	for c, cell := range cells {
		cell = Cut(cell, widths[c])
		pad := strings.Repeat(" ", widths[c]-columns(cell))
		switch {
		case slices.Contains(t.Right, c):
			cell = pad + cell
		case c < len(cells)-1:
			cell += pad
		}
		if t.Paint != nil {
			cell = t.Paint(row, c, cell)
		}
		if c > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}
