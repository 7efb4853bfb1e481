package render

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestBar(t *testing.T) {
	for _, c := range []struct {
		part, most int64
		width      int
		blocks     bool
		want       string
	}{
		{8, 8, 4, true, "████"}, {4, 8, 4, true, "██"}, {1, 8, 4, true, "▌"}, {3, 32, 1, true, "▏"}, {5, 8, 4, true, "██▌"}, {7, 8, 1, true, "▉"},
		{1, 1 << 62, 4, true, "▏"}, {0, 8, 4, true, ""}, {-1, 8, 4, true, ""}, {9, 8, 2, true, "██"}, {1, 0, 4, true, ""}, {1, 1, 0, true, ""}, {1, 1, -3, false, ""},
		{8, 8, 4, false, "####"}, {5, 8, 4, false, "###"}, {1, 100, 4, false, "#"},
	} {
		if got := Bar(c.part, c.most, c.width, c.blocks); got != c.want {
			t.Errorf("the bar of %d of %d in %d columns is %q, want %q", c.part, c.most, c.width, got, c.want)
		}
	}
}

// A bar is never wider than its width, and never shorter than the bar of a smaller part.
func TestBarsCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 1<<62).Draw(t, "most")
		a := rapid.Int64Range(1, most).Draw(t, "a")
		b := rapid.Int64Range(a, most).Draw(t, "b")
		width, blocks := rapid.IntRange(1, 60).Draw(t, "width"), rapid.Bool().Draw(t, "blocks")
		less, more := Bar(a, most, width, blocks), Bar(b, most, width, blocks)
		if columns(less) == 0 || columns(less) > columns(more) || columns(more) > width {
			t.Fatalf("the bars of %[2]d and %[4]d of %[5]d in %[6]d columns are %[1]q and %[3]q", less, a, more, b, most, width)
		}
	})
}

func TestTableWidth(t *testing.T) {
	table := Table{Head: []string{"A", "B"}, Rows: [][]string{{strings.Repeat("x", 30), "12345"}}, Cut: []int{0}}
	for _, c := range []struct{ asked, want int }{{100, 37}, {37, 37}, {20, 20}, {10, minColumn + gap + 5}} {
		if got := table.Width(c.asked); got != c.want {
			t.Errorf("Width(%d) = %d, want %d", c.asked, got, c.want)
		}
		if line := table.Lines(c.asked)[1]; columns(line) != min(c.want, c.asked) {
			t.Errorf("the line for a width of %d is %q", c.asked, line)
		}
	}
}
