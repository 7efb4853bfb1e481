package inspect

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/spend"
)

// statColumn is a column of the chart. All but the first hold numbers.
type statColumn struct {
	head  string
	cell  func(statsSum) string
	spare int // columns with higher values are left out earlier; 0: never
}

// Bounds of the width of bars. A shorter bar shows little, a longer one shows nothing more.
const (
	minBar = 6
	maxBar = 40
)

// drawStats prints a line with a bar for each group. If the columns do not fit, some are left out. The bar takes the
// remaining width.
func drawStats(a *cmdutil.App, doc stats) error {
	width, columns := cli.Width(a.Out), doc.columns()
	table, bar := layStats(a, doc, columns, width)
	for bar < minBar && leaveOut(&columns) {
		table, bar = layStats(a, doc, columns, width)
	}
	if err := a.Table(table); err != nil {
		return err
	}
	spend.Legend(a.Err, table.Rows, "~")
	return nil
}

// leaveOut removes the least important column, and reports whether there was one.
func leaveOut(columns *[]statColumn) bool {
	first := 0
	for i, c := range *columns {
		if c.spare > (*columns)[first].spare {
			first = i
		}
	}
	if (*columns)[first].spare == 0 {
		return false
	}
	*columns = slices.Delete(*columns, first, first+1)
	return true
}

// columns returns the columns that are not empty for all groups.
func (d stats) columns() []statColumn {
	if d.By == "tool" {
		return []statColumn{
			{"CALLS", func(s statsSum) string { return strconv.Itoa(s.Calls) }, 0},
			{"ERRORS", func(s statsSum) string { return strconv.Itoa(s.Errors) }, 1},
		}
	}
	list := []statColumn{{"TURNS", func(s statsSum) string { return strconv.Itoa(s.Turns) }, 0}}
	add := func(is bool, c statColumn) {
		if is {
			list = append(list, c)
		}
	}
	spent, told := d.Total.Spent, d.Total.InTurns
	add(d.Total.Calls > 0, statColumn{"CALLS", func(s statsSum) string { return strconv.Itoa(s.Calls) }, 4})
	add(spent != nil, statColumn{"TOKENS", spentCell(func(s *spend.Sum) string { return short(s.Tokens.Total()) }), 3})
	add(spent != nil, statColumn{"USD", spentCell(func(s *spend.Sum) string { return s.ReportedText() }), 1})
	add(spent != nil && spent.Computed != "", statColumn{"~USD", spentCell(func(s *spend.Sum) string { return s.ComputedText() }), 5})
	add(told != nil, statColumn{"IN TURNS", toldCell(func(s *spend.Told) string { return short(s.Tokens.Total()) }), 2})
	add(told != nil, statColumn{"~USD IN TURNS", toldCell(func(s *spend.Told) string { return s.ComputedText() }), 6})
	return list
}

// spentCell returns a cell about recorded costs, or a dash.
func spentCell(text func(*spend.Sum) string) func(statsSum) string {
	return func(s statsSum) string {
		if s.Spent == nil {
			return "-"
		}
		return text(s.Spent)
	}
}

// toldCell returns a cell about tokens that turns mention, or a dash.
func toldCell(text func(*spend.Told) string) func(statsSum) string {
	return func(s statsSum) string {
		if s.InTurns == nil {
			return "-"
		}
		return text(s.InTurns)
	}
}

// layStats lays the chart out, and returns the width of its bars.
func layStats(a *cmdutil.App, doc stats, columns []statColumn, width int) (render.Table, int) {
	t := render.Table{Head: []string{strings.ToUpper(doc.By)}, Cut: []int{0}}
	for i, c := range columns {
		t.Head = append(t.Head, c.head)
		t.Right = append(t.Right, i+1)
	}
	for _, g := range append(slices.Clone(doc.Groups), statsGroup{"total", doc.Total}) {
		row := []string{render.Cut(cmp.Or(g.Key, "-"), max(width/3, 40))}
		for _, c := range columns {
			row = append(row, c.cell(g.statsSum))
		}
		t.Rows = append(t.Rows, row)
	}
	bar := min(width-t.Width(width-minBar-2)-2, maxBar)
	return withBars(a, doc, t, bar), bar
}

// withBars adds the column of bars.
func withBars(a *cmdutil.App, doc stats, t render.Table, width int) render.Table {
	var highest int64
	for _, g := range doc.Groups {
		highest = max(highest, doc.measure(g.statsSum))
	}
	const at = 2 // after the name and the number
	blocks, head := cli.IsUTF8(os.Getenv), t.Head
	t.Head = slices.Insert(slices.Clone(head), at, strings.Repeat(" ", max(width, 0)))
	for i := range t.Rows {
		bar := ""
		if i < len(doc.Groups) {
			bar = render.Bar(doc.measure(doc.Groups[i].statsSum), highest, width, blocks)
		}
		t.Rows[i] = slices.Insert(t.Rows[i], at, bar)
	}
	for i, column := range t.Right {
		if column >= at {
			t.Right[i]++
		}
	}
	t.Paint = paintStats(a.Style(), t.Head, len(doc.Groups))
	return t
}

// paintStats colours cells by meaning: errors, computed and unknown values.
func paintStats(style cli.Style, head []string, total int) func(row, column int, padded string) string {
	return func(row, column int, padded string) string {
		text := strings.TrimSpace(padded)
		switch {
		case row == total:
			return style.Bold(padded)
		case strings.TrimSpace(head[column]) == "":
			return style.Cyan(padded)
		case head[column] == "ERRORS" && text != "0":
			return style.Red(padded)
		case text == "-", strings.HasPrefix(head[column], "~"):
			return style.Dim(padded)
		}
		return padded
	}
}

// short formats a number of tokens with about three digits.
func short(n int64) string {
	const thousand = 1000
	if n < thousand {
		return strconv.FormatInt(n, 10)
	}
	f := float64(n)
	for _, unit := range []string{"k", "M", "G"} {
		if f /= thousand; f < 999.5 {
			digits := 2
			for limit := 9.995; f >= limit && digits > 0; limit *= 10 {
				digits--
			}
			return strconv.FormatFloat(f, 'f', digits, 64) + unit
		}
	}
	return strconv.FormatFloat(f/thousand, 'f', 0, 64) + "T"
}
