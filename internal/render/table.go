package render

import (
	"slices"
	"strings"
)

// Table lays out rows in columns. Where they do not all fit, texts are cut first, then
// columns are left out, then texts are cut further: no line is wider than asked for.
type Table struct {
	Head  []string
	Rows  [][]string
	Right []int // columns that stand at the right, such as numbers
	Cut   []int // columns that may be cut, the one that gives way first first
	Drop  []int // columns that may be left out, the one that goes first first

	// Paint colours a cell that has its width already. Row -1 is the head. nil
	// paints nothing.
	Paint func(row, column int, padded string) string
}

const (
	gap          = 2
	enoughColumn = 20 // columns are cut to it before one is left out
	leastColumn  = 10 // and to this, a day, if none is left to leave out
)

// Lines returns the table's lines, none of which is wider than width.
func (t Table) Lines(width int) []string {
	head, rows := t.flat()
	widths := t.fit(natural(head, rows), width)
	lines := []string{t.line(-1, head, widths)}
	for i, row := range rows {
		lines = append(lines, t.line(i, row, widths))
	}
	return lines
}

// Width is how wide the table is, with every column, where so many columns are asked for:
// more, if what may not be cut takes more.
func (t Table) Width(width int) int {
	widths := natural(t.flat())
	t.shrink(widths, width, leastColumn)
	return total(widths)
}

// flat returns the head and the rows, each cell on one line.
func (t Table) flat() (head []string, rows [][]string) {
	rows = make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = flat(row)
	}
	return flat(t.Head), rows
}

// flat returns cells on one line each.
func flat(cells []string) []string {
	list := make([]string, len(cells))
	for i, cell := range cells {
		list[i] = oneLine(cell)
	}
	return list
}

// natural returns the widths that cut nothing.
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

// fit makes widths smaller until they fit.
func (t Table) fit(widths []int, width int) []int {
	for _, c := range t.Drop {
		enough := slices.Clone(widths)
		if t.shrink(enough, width, enoughColumn); total(enough) <= width {
			break
		}
		widths[c] = left
	}
	t.shrink(widths, width, enoughColumn)
	t.shrink(widths, width, leastColumn)
	for c := len(widths) - 1; c >= 0; c-- { // there is no room for what cannot be cut
		if over := total(widths) - width; over > 0 && widths[c] != left {
			widths[c] = max(1, widths[c]-over)
		}
	}
	return widths
}

// shrink cuts the columns that may be cut, none below least or its head.
func (t Table) shrink(widths []int, width, least int) {
	for _, c := range t.Cut {
		if over := min(total(widths)-width, widths[c]-max(least, columns(t.Head[c]))); over > 0 && widths[c] != left {
			widths[c] -= over
		}
	}
}

// total is the width of a line.
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
