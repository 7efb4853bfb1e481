package render

import "strings"

// eighths are blocks that fill so many eighths of a column.
var eighths = []rune(" ▏▎▍▌▋▊▉█")

// Bar draws a part of the most there is as a bar, at most so many columns wide. What is
// not nothing shows. Without blocks it is made of signs that every terminal has.
func Bar(part, most int64, width int, blocks bool) string {
	if part <= 0 || most <= 0 || width <= 0 {
		return ""
	}
	share := min(float64(part)/float64(most), 1)
	if !blocks {
		return strings.Repeat("#", max(1, int(share*float64(width)+0.5)))
	}
	n := max(1, int(share*float64(width)*8+0.5))
	bar := strings.Repeat(string(eighths[8]), n/8)
	if rest := n % 8; rest > 0 {
		bar += string(eighths[rest])
	}
	return bar
}
