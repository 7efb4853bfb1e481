package render

import "strings"

// eighths are characters that fill 0 to 8 eighths of a column.
var eighths = []rune(" ▏▎▍▌▋▊▉█")

// Bar draws a bar of at most width columns for part of a maximum. A positive part is always visible. Without blocks the
// bar consists of # characters, which every terminal can print.
func Bar(part, whole int64, width int, blocks bool) string {
	if part <= 0 || whole <= 0 || width <= 0 {
		return ""
	}
	share := min(float64(part)/float64(whole), 1)
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
