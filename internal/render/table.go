package render

import (
	"slices"
	"strings"
)

// Table lays out rows in columns. If the columns do not fit, texts are cut first, then columns are left out, then texts
// are cut further. No line is wider than asked for.
type Table struct {
	Head  []string
	Rows  [][]string
	Right []int // columns with text aligned to the right, such as numbers
	Cut   []int // columns that may be cut, in this order
	Drop  []int // columns that may be left out, in this order

	// Paint colours a cell that is padded already. Row -1 is the head. If Paint is nil, cells stay as they are.
	Paint func(row, column int, padded string) string
}

const (
	gap          = 2
	enoughColumn = 20 // width to which columns are cut before one is left out
	minColumn    = 10 // width to which they are cut after that; it holds a day
)

// Lines returns the lines of the table, none wider than width.
func (t Table) Lines(width int) []string {
	head, rows := t.flat()
	widths := t.fit(natural(head, rows), width)
	lines := []string{t.line(-1, head, widths)}
	for i, row := range rows {
		lines = append(lines, t.line(i, row, widths))
	}
	return lines
}

// Width returns the width of the table with all its columns, cut to the given width where columns may be cut.
func (t Table) Width(width int) int {
	widths := natural(t.flat())
	t.shrink(widths, width, minColumn)
	return total(widths)
}

// flat returns the head and the rows with each cell on one line.
func (t Table) flat() (head []string, rows [][]string) {
	rows = make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = flat(row)
	}
	return flat(t.Head), rows
}

// flat returns cells with each on one line.
func flat(cells []string) []string {
	list := make([]string, len(cells))
	for i, cell := range cells {
		list[i] = oneLine(cell)
	}
	return list
}

// natural returns the widths at which no cell is cut.
func natural(head []string, rows [][]string) []int {
	widths := make([]int, len(head))
	for c := range widths {
		widths[c] = columns(head[c])
		for _, row := range rows {
			widths[c] = max(widths[c], columns(row[c]))
		}
	}
	return widths
}

// left is the width of a column that is left out.
const left = -1

// fit reduces widths until they fit.
func (t Table) fit(widths []int, width int) []int {
	for _, c := range t.Drop {
		enough := slices.Clone(widths)
		if t.shrink(enough, width, enoughColumn); total(enough) <= width {
			break
		}
		widths[c] = left
	}
	t.shrink(widths, width, enoughColumn)
	t.shrink(widths, width, minColumn)
	for c := len(widths) - 1; c >= 0; c-- { // columns that must not be cut do not fit either
		if over := total(widths) - width; over > 0 && widths[c] != left {
			widths[c] = max(1, widths[c]-over)
		}
	}
	return widths
}

// shrink reduces the widths of columns that may be cut, none below least or the width of its head.
func (t Table) shrink(widths []int, width, least int) {
	for _, c := range t.Cut {
		if over := min(total(widths)-width, widths[c]-max(least, columns(t.Head[c]))); over > 0 && widths[c] != left {
			widths[c] -= over
		}
	}
}

// total returns the width of a line.
func total(widths []int) int {
	sum := -gap
	for _, w := range widths {
		if w != left {
			sum += gap + w
		}
	}
	return sum
}

func (t Table) line(row int, cells []string, widths []int) string {
	var b strings.Builder
	last := len(cells) - 1
	for last > 0 && widths[last] == left {
		last--
	}
	for c, cell := range cells {
		if widths[c] == left {
			continue
		}
		cell = Cut(cell, widths[c])
		pad := strings.Repeat(" ", widths[c]-columns(cell))
		switch {
		case slices.Contains(t.Right, c):
			cell = pad + cell
		case c < last:
			cell += pad
		}
		if t.Paint != nil {
			cell = t.Paint(row, c, cell)
		}
		if b.Len() > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}
