package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/render"
)

// Texts are cut to 20 columns, then columns are left out, then texts are cut further.
func TestTable(t *testing.T) {
	table := render.Table{
		Head: []string{"ID", "N", "KIND", "TITLE"}, Right: []int{1}, Cut: []int{3, 0}, Drop: []int{2, 1},
		Rows: [][]string{{"an-id-of-thirty-columns-width-", "7", "panel", "a title that has thirty-six columns."}, {"b", "12345", "", "\x1b[2J\n日本"}},
	}
	for width, want := range map[int]string{
		1000: `
ID                                  N  KIND   TITLE
an-id-of-thirty-columns-width-      7  panel  a title that has thirty-six columns.
b                               12345         ␛[2J 日本`,
		60: `
ID                            N  KIND   TITLE
an-id-of-thirty-columns…      7  panel  a title that has th…
b                         12345         ␛[2J 日本`,
		54: `
ID                             N  TITLE
an-id-of-thirty-columns-…      7  a title that has th…
b                          12345  ␛[2J 日本`,
		42: `
ID                    TITLE
an-id-of-thirty-col…  a title that has th…
b                     ␛[2J 日本`,
		22: `
ID          TITLE
an-id-of-…  a title t…
b           ␛[2J 日本`,
		12: `
ID         …
an-id-of…  …
b          …`,
	} {
		have := "\n" + strings.Join(table.Lines(width), "\n")
		if have != want {
			t.Errorf("width %d:%s\nwant%s", width, have, want)
		}
	}
}

// A table is never wider than the given width. If there is room, cells are whole. Colours take no room.
func TestAnyTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.SampledFrom([]string{"", "a", "ä", "日本語", "a long text of some words", strings.Repeat("x", 90), "two\nlines", "\x1b[31m"})
		number := rapid.SampledFrom([]int{0, 1, 2, 3})
		table := render.Table{Head: []string{"ONE", "N", "THREE", "LAST"}, Right: []int{1}}
		table.Cut = rapid.SliceOfDistinct(number, func(n int) int { return n }).Draw(t, "cut")
		table.Drop = rapid.SliceOfNDistinct(number, 0, 3, func(n int) int { return n }).Draw(t, "drop")
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			table.Rows = append(table.Rows, []string{cell.Draw(t, "0"), "17", cell.Draw(t, "2"), cell.Draw(t, "3")})
		}
		width := rapid.IntRange(20, 300).Draw(t, "width")
		lines := table.Lines(width)
		for _, line := range lines {
			if uniseg.StringWidth(line) > width || strings.ContainsAny(line, "\n\x1b") {
				t.Fatalf("a line has %d columns: %q", uniseg.StringWidth(line), line)
			}
		}
		table.Paint = func(_, _ int, cell string) string { return "<" + cell + ">" }
		bare := strings.NewReplacer("<", "", ">", "")
		for i, line := range table.Lines(width) {
			if strings.TrimRight(bare.Replace(line), " ") != lines[i] {
				t.Fatalf("painted %q, plain %q", line, lines[i])
			}
		}
		whole := strings.Join(table.Lines(1000), "\n")
		for _, row := range table.Rows {
			if slices.ContainsFunc(row, func(c string) bool { return !strings.Contains(whole, render.Cut(c, 1000)) }) {
				t.Fatalf("the cell %q is cut in\n%s", row, whole)
			}
		}
	})
}
