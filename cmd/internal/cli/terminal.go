package cli

import (
	"os"
	"strconv"

	"golang.org/x/term"
)

// A Screen is a writer whose output ends on a terminal, by way of a pager or a filter.
type Screen interface{ Terminal() *os.File }

// Terminal returns the terminal behind a reader or writer, nil if there is none.
func Terminal(w any) *os.File {
	if s, ok := w.(Screen); ok {
		w = s.Terminal()
	}
	if f, ok := w.(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool { return Terminal(w) != nil }

const (
	leastWidth = 20 // the narrowest that text is laid out for
	usualWidth = 80 // of a terminal that does not say

	// NoWidth is the width of what has none, a file or pipe: nothing is cut there.
	NoWidth = 1 << 30
)

// Width is the number of columns of a terminal; of a file or pipe what COLUMNS says, else
// NoWidth.
func Width(w any) int {
	f := Terminal(w)
	if f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return max(width, leastWidth)
		}
	}
	switch width := columnsOf(); {
	case width > 0:
		return width
	case f != nil:
		return usualWidth
	}
	return NoWidth
}

// Height is the number of lines of a terminal.
func Height(w any) int {
	if f := Terminal(w); f != nil {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return 24
}

// columnsOf is the width that COLUMNS asks for, 0 if it asks for none.
func columnsOf() int {
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || n < leastWidth || n > 1000 {
		return 0
	}
	return n
}
